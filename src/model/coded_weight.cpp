// Forms chosen, values quantised, and tensors of codes on the host.
// SPDX-License-Identifier: MIT
#include "model/coded_weight.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/text.h"
#include "model/formats/stored_format.h"
#include "model/memory.h"
#include "model/weights.h"
#include "ops/round_scales.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/quantize.h"

namespace tessera::model {
namespace {

constexpr int64_t kProbeRows = 16;

int64_t groups_of(const CodeForm& form, int64_t k) {
  return form.group > 0 ? divide_up(k, form.group) : 1;
}

const StoredFormat* stored_format(const LoadOptions& options, const Slice& slice) {
  if (options.formats == nullptr) return nullptr;
  constexpr std::string_view kWeight = ".weight";
  std::string_view layer = slice.spec.name;
  if (layer.ends_with(kWeight)) layer.remove_suffix(kWeight.size());
  const StoredFormat& format = options.formats->of(layer);
  return format.storage == Storage::values ? nullptr : &format;
}

// Of one slice; none if its columns are not whole groups.
std::optional<CodeForm> stored_form(const LoadOptions& options, const Slice& slice) {
  const StoredFormat* format = stored_format(options, slice);
  if (format == nullptr) return std::nullopt;
  const auto form = form_of(*format, slice.spec.num_cols);
  if (!form || slice.num_cols == slice.spec.num_cols) return form;
  const bool is_whole =
      form->group == 0 || (slice.col % form->group == 0 && slice.num_cols % form->group == 0);
  return is_whole && !form->has_order ? form : std::nullopt;
}

// Whether blocks of rows stay blocks where the slices are put one below the other.
bool keeps_blocks(const CodeForm& form, std::span<const Slice> slices, int64_t interleave) {
  if (interleave > 0) return false;
  for (size_t i = 0; i < slices.size(); ++i) {
    const bool is_last = i + 1 == slices.size();
    if (slices[i].row % form.rows_per_scale != 0) return false;
    if (!is_last && slices[i].num_rows % form.rows_per_scale != 0) return false;
  }
  return true;
}

// A weight of the form in Packing::rows, at made-up addresses.
Weight dry_weight(const CodeForm& form, int64_t n, int64_t k, TensorPool& pool) {
  Weight weight{.values = pool.make(form.codes, {n, k}),
                .rows_per_scale = form.rows_per_scale,
                .group = form.group,
                .is_static = true};
  const int64_t groups = groups_of(form, k), rows = divide_up(n, form.rows_per_scale);
  const auto make = [&](DType dtype) {
    return form.group == 0 ? pool.make(dtype, {rows}) : pool.make(dtype, {rows, groups});
  };
  weight.scale = make(DType::f32);
  if (form.has_zero_points) weight.zero_point = make(DType::u8);
  if (form.has_table) weight.table = pool.make(DType::f32, {kTableSize});
  return weight;
}

// Whether the device multiplies values by a weight of the form.
bool takes_values(const LoadOptions& options, const CodeForm& form, int64_t n, int64_t k) {
  if (options.device.is_cpu()) return true;
  if (form.has_order) return false;
  TensorPool pool(options.device, DryRegion::probe);
  Weight weight = dry_weight(form, n, k, pool);
  weight.packing = packing_for(options, form, n, k);
  weight.scale->dtype = kept_scale(form, weight.packing);
  return supports({.a = pool.make(options.dtype, {kProbeRows, k}),
                   .b = weight,
                   .out = pool.make(options.dtype, {kProbeRows, n})},
                  {.batch_invariant = true});
}

// Whether it multiplies codes by it.
bool takes_codes(const LoadOptions& options, const CodeForm& form, const InputForm& inputs,
                 int64_t n, int64_t k) {
  TensorPool pool(options.device, DryRegion::probe);
  const TensorView scale = inputs.group > 0 ? pool.make(DType::f32, {kProbeRows, k / inputs.group})
                                            : pool.make(DType::f32, {kProbeRows});
  return supports({.a = pool.make(*inputs.codes, {kProbeRows, k}),
                   .b = dry_weight(form, n, k, pool),
                   .out = pool.make(options.dtype, {kProbeRows, n}),
                   .a_scale = scale},
                  {.batch_invariant = true});
}

// One block of rows and columns under one scale.
void quantize_block(const TensorView& values, int64_t row, int64_t col, int64_t num_rows,
                    int64_t num_cols, const Weight& to, float& scale) {
  const Tensor block(DType::f32, {num_rows, num_cols});
  const Tensor codes(to.values.dtype, {num_rows, num_cols});
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t first = (row + i) * values.size(1) + col;
    const TensorView all =
        TensorView::contiguous(values.data, values.dtype, {values.num_elements()}, values.device);
    convert(
        all.slice(0, first, first + num_cols),
        TensorView::contiguous(block.view().as<float>() + i * num_cols, DType::f32, {num_cols}));
  }
  const TensorView one = TensorView::contiguous(&scale, DType::f32, {1});
  quantize({.x = block, .out = codes, .scale = one});
  for (int64_t i = 0; i < num_rows; ++i) {
    std::memcpy(to.values.as<uint8_t>() + (row + i) * to.k() + col,
                codes.view().as<uint8_t>() + i * num_cols, static_cast<size_t>(num_cols));
  }
}

}  // namespace

std::string to_string(const InputForm& form) {
  if (!form.codes) return "values";
  return concat(name(*form.codes), form.static_scale.rank > 0 ? std::string(" with a static scale")
                                   : form.group > 0 ? concat(" per token and ", form.group)
                                                    : std::string(" per token"));
}

std::string stored_as(const LoadOptions& options, const Slice& slice) {
  const StoredFormat* format = stored_format(options, slice);
  return format == nullptr ? std::string() : to_string(*format);
}

std::optional<CodeForm> choose_form(const LoadOptions& options, const std::string& name,
                                    std::span<const Slice> slices, int64_t interleave) {
  const int64_t k = slices.front().num_cols;
  const bool is_stored = options.format == WeightFormat::stored;
  std::optional<CodeForm> form;
  if (is_stored) {
    std::vector<CodeForm> forms;
    for (const Slice& slice : slices) {
      const auto one = stored_form(options, slice);
      if (!one) return std::nullopt;
      forms.push_back(*one);
    }
    form = common_form(forms, k);
  } else {
    form = form_of(options.format, k, options.weight_group, name);
  }
  if (!form) return std::nullopt;
  if (form->rows_per_scale > 1 && !keeps_blocks(*form, slices, interleave)) {
    form = by_row(*form);
    if (!fits(*form, k) && is_stored) return std::nullopt;
    if (!fits(*form, k)) {
      fail(concat("load_model: tensor '", name, "' has ", k, " columns; ",
                  tessera::name(options.format), " needs a multiple of ", form->group,
                  " where rows of several tensors are joined: use fp8 or int8"));
    }
  }
  int64_t n = 0;
  for (const Slice& slice : slices) n += slice.num_rows;
  if (is_stored && !takes_values(options, *form, n, k) &&
      !choose_inputs(options, *form, slices, n).form.codes) {
    return std::nullopt;
  }
  return form;
}

InputChoice choose_inputs(const LoadOptions& options, const CodeForm& form,
                          std::span<const Slice> slices, int64_t n) {
  const bool has_bytes = form.codes == DType::i8 || form.codes == DType::e4m3;
  if (options.activations == ActivationFormat::plain || !has_bytes || form.has_zero_points ||
      form.has_order) {
    return {};
  }
  const int64_t k = slices.front().num_cols;
  const auto all_slices = [&](bool StoredFormat::*flag) {
    return options.format == WeightFormat::stored &&
           std::ranges::all_of(slices, [&](const Slice& slice) {
             const StoredFormat* format = stored_format(options, slice);
             return format != nullptr && format->*flag;
           });
  };
  const bool is_usual = options.format == WeightFormat::stored
                            ? all_slices(&StoredFormat::takes_codes)
                            : !options.device.is_cpu();
  const bool is_wanted = options.activations == ActivationFormat::codes || is_usual;
  const bool has_groups = form.group == kInputGroup && k % kInputGroup == 0;
  const InputForm codes{.codes = form.codes, .group = has_groups ? kInputGroup : 0};
  if (!is_wanted || !takes_codes(options, form, codes, n, k)) return {};
  return {.form = codes,
          .is_static = codes.group == 0 && all_slices(&StoredFormat::has_input_scale)};
}

Packing packing_for(const LoadOptions& options, const CodeForm& form, int64_t n, int64_t k) {
  if (options.device.is_cpu() || form.has_order) return Packing::rows;
  TensorPool pool(options.device, DryRegion::probe);
  return preferred_packing({.a = pool.make(options.dtype, {kProbeRows, k}),
                            .b = dry_weight(form, n, k, pool),
                            .out = pool.make(options.dtype, {kProbeRows, n})},
                           {.batch_invariant = true});
}

HostWeight::HostWeight(const CodeForm& with, int64_t n, int64_t k)
    : form(with), codes(form.codes, {n, k}) {
  const int64_t groups = groups_of(form, k);
  const auto make = [&](DType dtype) {
    return form.group == 0 ? Tensor(dtype, {n}) : Tensor(dtype, {n, groups});
  };
  scale = make(DType::f32);
  if (form.has_zero_points) zero_point = make(DType::u8);
  if (form.has_order) order = Tensor(DType::i32, {k});
  if (form.has_table) table = Tensor(DType::f32, {kTableSize});
}

Weight HostWeight::view() const {
  Weight weight{.values = codes,
                .scale = scale.view(),
                .rows_per_scale = form.rows_per_scale,
                .group = form.group,
                .is_static = true};
  if (form.has_zero_points) weight.zero_point = zero_point.view();
  if (form.has_order) weight.order = order.view();
  if (form.has_table) weight.table = table.view();
  return weight;
}

void HostWeight::fold_scales() {
  if (form.rows_per_scale == 1) return;
  const TensorView all = scale;
  const int64_t rows = divide_up(all.size(0), form.rows_per_scale), groups = all.size(1);
  Tensor folded(DType::f32, {rows, groups});
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(folded.view().as<float>() + row * groups,
                all.as<float>() + row * form.rows_per_scale * groups,
                static_cast<size_t>(groups) * sizeof(float));
  }
  scale = std::move(folded);
}

void quantize_rows(const TensorView& values, const CodeForm& form, const Weight& to) {
  const int64_t num_rows = values.size(0), k = values.size(1), groups = groups_of(form, k);
  float* scale = to.scale->as<float>();
  if (form.rows_per_scale == 1) {
    QuantizeArgs args{.x = values,
                      .out = to.values,
                      .scale = TensorView::contiguous(scale, DType::f32, {num_rows, groups})};
    if (!form.has_zero_points) return ops::quantize_rounded(args, form.scale);
    const Tensor zeros(DType::i32, {num_rows, groups});
    args.zero_point = zeros.view();
    ops::quantize_rounded(args, form.scale);
    for (int64_t i = 0; i < num_rows * groups; ++i) {
      to.zero_point->as<uint8_t>()[i] = static_cast<uint8_t>(zeros.view().as<int32_t>()[i]);
    }
    return;
  }
  for (int64_t row = 0; row < num_rows; row += form.rows_per_scale) {
    const int64_t rows = std::min(form.rows_per_scale, num_rows - row);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t col = g * form.group, cols = std::min(form.group, k - col);
      float of_block = 1.0f;
      quantize_block(values, row, col, rows, cols, to, of_block);
      for (int64_t i = 0; i < rows; ++i) scale[(row + i) * groups + g] = of_block;
    }
  }
}

}  // namespace tessera::model
