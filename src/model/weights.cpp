// Weights from slices of a checkpoint's tensors: read in blocks by all threads, converted or
// quantised and checked; those for a GPU are left to the upload.
// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
#include <utility>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/gemm.h"

namespace tessera::model {
namespace {

// A block is read and converted by one thread; large enough that starting it costs nothing.
constexpr int64_t kBlockElements = 1 << 18;
// The same of codes: GPTQ and AWQ store columns, so that larger blocks are read in longer runs.
constexpr int64_t kCodedBlockElements = 1 << 22;
constexpr int64_t kCodedBlockRows = 32;  // a multiple of them

void check_options(const LoadOptions& options) {
  if (!is_float16_or_32(options.dtype)) {
    fail(concat("load_model: dtype is ", name(options.dtype), "; it must be f32, f16 or bf16"));
  }
  if (options.num_ranks < 1 || options.rank < 0 || options.rank >= options.num_ranks) {
    fail(concat("load_model: rank is ", options.rank, " of ", options.num_ranks, " ranks"));
  }
}

// Calls body(row, count) for blocks of the slice's rows on all threads. Blocks begin at multiples
// of `step`.
template <class Body>
void for_each_block(const Slice& slice, int64_t num_elements, int64_t step, Body&& body) {
  const int64_t wanted = num_elements / std::max<int64_t>(slice.num_cols, 1) / step * step;
  const int64_t block_rows = std::clamp(wanted, step, std::max(step, slice.num_rows));
  const int64_t num_blocks = (slice.num_rows + block_rows - 1) / block_rows;
  parallel_tasks(num_blocks, [&](int64_t block) {
    const int64_t row = block * block_rows;
    body(row, std::min(block_rows, slice.num_rows - row));
  });
}

}  // namespace

struct Weights::Shape {
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  bool is_vector = false;
};

Weights::Weights(const LoadOptions& options, const WeightSource& source, const Weights& dry)
    : options_(options),
      source_(&source),
      pool_(options.device),
      total_bytes_(dry.read_bytes(source)) {
  check_options(options);
  if (options.on_progress) options.on_progress(0, total_bytes_);
  if (options.device.is_cpu()) return;
  pool_.reserve(dry.pool_.aligned_bytes());
  upload_ = std::make_unique<WeightUpload>(source, options.dtype, options.check_values);
}

Weights::Weights(const LoadOptions& options)
    : options_(options), pool_(options.device, DryRegion::weights) {
  check_options(options);
}

int64_t Weights::share(std::string_view what, int64_t size) const {
  if (size % options_.num_ranks != 0) {
    fail(concat("load_model: ", what, " is ", size, " and cannot be shared by ", options_.num_ranks,
                " ranks; use a number of ranks that divides it"));
  }
  return size / options_.num_ranks;
}

Weights::Shape Weights::note(const std::vector<Slice>& slices, const CodeForm* codes) {
  Shape shape{.num_rows = 0,
              .num_cols = slices.front().num_cols,
              .is_vector = slices.front().spec.is_vector};
  for (const Slice& slice : slices) {
    shape.num_rows += slice.num_rows;
    mention(slice.spec);
    if (!is_dry()) continue;
    if (codes != nullptr) {
      code_bytes_ += form_bytes(*codes, slice.num_rows, slice.num_cols);
    } else {
      reads_.emplace_back(slice.spec, slice.num_elements());
    }
  }
  return shape;
}

TensorView Weights::keep(Tensor tensor) {
  if (options_.device.is_cpu()) return pool_.keep(std::move(tensor));
  const TensorView& from = tensor.view();
  const TensorView to = from.rank == 1 ? pool_.make(from.dtype, {from.size(0)})
                                       : pool_.make(from.dtype, {from.size(0), from.size(1)});
  copy_bytes(to.data, to.device, from.data, from.device, static_cast<size_t>(tensor.size_bytes()));
  synchronize(to.device);
  return to;
}

TensorView Weights::dense(const std::string& name, const std::vector<Slice>& slices,
                          int64_t interleave) {
  const auto [num_rows, num_cols, is_vector] = note(slices);
  const DType dtype = options_.dtype;
  const TensorView view =
      is_vector ? pool_.make(dtype, {num_rows}) : pool_.make(dtype, {num_rows, num_cols});
  if (!is_dry()) {
    fill(TensorView::contiguous(view.data, dtype, {num_rows, num_cols}, view.device), slices,
         interleave);
  }
  by_name_[name] = {.values = view};
  return view;
}

void Weights::fill(const TensorView& matrix, const std::vector<Slice>& slices, int64_t interleave) {
  Placement place{.interleave = interleave, .num_slices = std::ssize(slices)};
  for (const Slice& slice : slices) {
    if (upload_ != nullptr) {
      upload_->add(slice, place, matrix);
    } else {
      SliceReader reader(*source_, slice, options_.dtype, options_.check_values);
      for_each_block(slice, kBlockElements, 1, [&](int64_t row, int64_t count) {
        if (place.is_run()) {
          reader.read(row, matrix.slice(0, place.row(row), place.row(row) + count));
        } else {
          const Tensor block(matrix.dtype, {count, slice.num_cols});
          reader.read(row, block);
          place.scatter(block, row, matrix);
        }
      });
      reader.finish();
      report(stored_bytes(slice));
    }
    place.begin += slice.num_rows;
    ++place.slice;
  }
}

void Weights::note_kept(const std::string& as, const LinearWeight& weight) {
  auto found = std::ranges::find(kept_, as, &KeptWeights::as);
  if (found == kept_.end()) found = kept_.insert(found, {.as = as});
  ++found->count;
  for (const TensorView& part :
       {weight.values, weight.scale, weight.zero_point, weight.order, weight.table}) {
    if (part.rank > 0) found->num_bytes += storage_bytes(part.dtype, part.num_elements());
  }
}

LinearWeight Weights::linear(const std::string& name, const std::vector<Slice>& slices,
                             int64_t interleave) {
  const std::optional<CodeForm> form = choose_form(options_, name, slices, interleave);
  if (!form) {
    const LinearWeight values{.values = dense(name, slices, interleave)};
    const std::string from = stored_as(options_, slices.front());
    const std::string as(tessera::name(options_.dtype));
    note_kept(from.empty() ? as : concat(as, ", dequantised from ", from), values);
    return values;
  }
  const bool has_codes = options_.format == WeightFormat::stored;
  const auto [num_rows, num_cols, is_vector] = note(slices, has_codes ? &*form : nullptr);
  LinearWeight& made = by_name_[name];
  if (is_dry()) {
    made = make_dry(*form, num_rows, num_cols);
  } else {
    HostWeight host(*form, num_rows, num_cols);
    if (form->has_order) fill_order(slices, host);
    if (form->has_table) fill_table(slices, host);
    Placement place{.interleave = interleave, .num_slices = std::ssize(slices)};
    for (const Slice& slice : slices) {
      fill_codes(slice, place, host);
      report(has_codes ? form_bytes(*form, slice.num_rows, slice.num_cols) : stored_bytes(slice));
      place.begin += slice.num_rows;
      ++place.slice;
    }
    host.fold_scales();
    made = put(std::move(host));
  }
  made.inputs = make_inputs(*form, slices, num_rows);
  std::string as = to_string(*form);
  if (made.packing != Packing::rows) {
    as += concat(", packed as ", tessera::name(made.packing), " with scales of ",
                 tessera::name(made.scale.dtype));
  }
  if (made.inputs.codes) as += concat(", times ", to_string(made.inputs));
  note_kept(as, made);
  return made;
}

// Parts that are joined read the same inputs: with static scales of their own, the largest one
// holds all of them.
InputForm Weights::make_inputs(const CodeForm& form, const std::vector<Slice>& slices,
                               int64_t num_rows) {
  InputChoice choice = choose_inputs(options_, form, slices, num_rows);
  if (!choice.is_static) return choice.form;
  if (is_dry()) {
    choice.form.static_scale = pool_.make(DType::f32, {1});
    return choice.form;
  }
  Tensor scale(DType::f32, {1});
  float& largest = *scale.view().as<float>() = 0.0f;
  for (const Slice& slice : slices) {
    largest = std::max(largest, source_->read_input_scale(slice.spec));
  }
  choice.form.static_scale = keep(std::move(scale));
  return choice.form;
}

// Parts that are joined take one order, which GPTQ gives to parts with the same inputs.
void Weights::fill_order(const std::vector<Slice>& slices, HostWeight& to) const {
  const std::vector<int32_t> first = source_->read_order(slices.front().spec);
  for (const Slice& slice : slices) {
    if (source_->read_order(slice.spec) == first) continue;
    fail(concat("checkpoint: the groups of '", slices.front().spec.name, "' and '", slice.spec.name,
                "' have different columns (act-order), and both are part of one product; load the ",
                "model with weights 'plain'"));
  }
  std::ranges::copy(first, to.order.view().as<int32_t>());
}

// Joined parts have one table, too; in one checkpoint all layers usually have the same.
void Weights::fill_table(const std::vector<Slice>& slices, HostWeight& to) const {
  const std::vector<float> first = source_->read_table(slices.front().spec);
  for (const Slice& slice : slices) {
    if (source_->read_table(slice.spec) == first) continue;
    fail(concat("checkpoint: the tables of '", slices.front().spec.name, "' and '", slice.spec.name,
                "' differ, and both are part of one product; load the model with weights 'plain'"));
  }
  std::ranges::copy(first, to.table.view().as<float>());
}

// Codes are made from the values as stored, not from values rounded to the model's dtype first.
void Weights::fill_codes(const Slice& slice, const Placement& place, HostWeight& to) {
  const CodeForm& form = to.form;
  const bool has_codes = options_.format == WeightFormat::stored;
  SliceReader reader(*source_, slice, options_.dtype, options_.check_values);
  const int64_t step = form.rows_per_scale > 1 ? form.rows_per_scale : kCodedBlockRows;
  const int64_t elements = has_codes ? kCodedBlockElements : kBlockElements;
  for_each_block(slice, elements, step, [&](int64_t row, int64_t count) {
    HostWeight block(form, count, slice.num_cols);
    Weight codes = block.view();
    if (form.has_order) codes.order = to.order.view();
    if (has_codes) {
      source_->read_codes(slice.spec, slice.row + row, slice.col, form, codes);
      if (options_.check_values) reader.check_scales(row, *codes.scale);
    } else {
      const Tensor values(reader.stored_dtype(), {count, slice.num_cols});
      reader.read(row, values);
      quantize_rows(values, form, codes);
      // Codes cannot show what is not finite, so it is refused here, asked for or not. The scales
      // tell: that of a group with such a value is NaN.
      if (find_not_finite(*codes.scale) >= 0) reader.check_finite(row, values);
    }
    place.scatter(block.codes, row, to.codes);
    place.scatter(block.scale, row, to.scale);
    if (form.has_zero_points) place.scatter(block.zero_point, row, to.zero_point);
  });
  reader.finish();
}

LinearWeight Weights::make_dry(const CodeForm& form, int64_t num_rows, int64_t num_cols) {
  LinearWeight made{.values = pool_.make(form.codes, {num_rows, num_cols}),
                    .rows_per_scale = form.rows_per_scale,
                    .group = form.group,
                    .packing = packing_for(options_, form, num_rows, num_cols)};
  const int64_t rows = (num_rows + form.rows_per_scale - 1) / form.rows_per_scale;
  const auto make = [&](DType dtype) {
    if (form.group == 0) return pool_.make(dtype, {rows});
    return pool_.make(dtype, {rows, (num_cols + form.group - 1) / form.group});
  };
  made.scale = make(kept_scale(form, made.packing));
  if (form.has_zero_points) made.zero_point = make(DType::u8);
  // Counted, but left out: checks of a product read an order, and here is none to read.
  if (form.has_order) (void)pool_.make(DType::i32, {num_cols});
  if (form.has_table) made.table = pool_.make(DType::f32, {kTableSize});
  if (options_.device.is_cpu()) made.table = {};  // left out as well, once it is counted
  return made;
}

LinearWeight Weights::put(HostWeight made) {
  const CodeForm form = made.form;
  const TensorView& codes = made.codes;
  const Packing packing = packing_for(options_, form, codes.size(0), codes.size(1));
  if (packing != Packing::rows) return pack(made, packing);
  LinearWeight weight{.values = keep(std::move(made.codes)),
                      .rows_per_scale = form.rows_per_scale,
                      .group = form.group};
  weight.scale = keep(std::move(made.scale));
  if (form.has_zero_points) weight.zero_point = keep(std::move(made.zero_point));
  if (form.has_order) weight.order = keep(std::move(made.order));
  if (form.has_table) weight.table = keep(std::move(made.table));
  return weight;
}

// Packed on the device, from a copy of the rows that is freed afterwards.
LinearWeight Weights::pack(const HostWeight& made, Packing packing) {
  const Device device = options_.device;
  const Weight rows = made.view();
  std::vector<Tensor> copies;
  const auto copied = [&](const TensorView& from) {
    copies.emplace_back(from.dtype, std::span(from.shape.data(), static_cast<size_t>(from.rank)),
                        device);
    const Tensor& to = copies.back();
    copy_bytes(to.view().data, device, from.data, from.device,
               static_cast<size_t>(to.size_bytes()));
    return to.view();
  };
  const auto like = [&](const TensorView& from, DType dtype) {
    return from.rank == 1 ? pool_.make(dtype, {from.size(0)})
                          : pool_.make(dtype, {from.size(0), from.size(1)});
  };
  Weight from = rows;
  from.values = copied(rows.values);
  from.scale = copied(*rows.scale);
  if (rows.zero_point) from.zero_point = copied(*rows.zero_point);
  LinearWeight to{.values = like(rows.values, rows.values.dtype),
                  .scale = like(*rows.scale, kept_scale(made.form, packing)),
                  .rows_per_scale = rows.rows_per_scale,
                  .group = rows.group,
                  .packing = packing};
  if (rows.zero_point) to.zero_point = like(*rows.zero_point, DType::u8);
  pack_weight({.weight = from, .out = to.as_weight()});
  synchronize(device);
  return to;
}

Weight LinearWeight::as_weight() const {
  Weight weight{.values = values,
                .rows_per_scale = rows_per_scale,
                .group = group,
                .packing = packing,
                .is_static = true};
  if (scale.rank > 0) weight.scale = scale;
  if (zero_point.rank > 0) weight.zero_point = zero_point;
  if (order.rank > 0) weight.order = order;
  if (table.rank > 0) weight.table = table;
  return weight;
}

void Weights::mention(const TensorSpec& spec) {
  if (spec_names_.insert(spec.name).second) specs_.push_back(spec);
}

const LinearWeight& Weights::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) fail(concat("Weights: there is no weight '", shown(name), "'"));
  return found->second;
}

int64_t Weights::num_parameters() const {
  int64_t total = 0;
  for (const TensorSpec& spec : specs_) total += spec.num_rows * spec.num_cols;
  return total;
}

int64_t Weights::read_bytes(const WeightSource& source) const {
  int64_t total = code_bytes_;
  for (const auto& [spec, num_elements] : reads_) {
    total += storage_bytes(source.native_dtype(spec, options_.dtype), num_elements);
  }
  return total;
}

int64_t Weights::stored_bytes(const Slice& slice) const {
  return storage_bytes(source_->native_dtype(slice.spec, options_.dtype), slice.num_elements());
}

void Weights::report(int64_t num_bytes) {
  read_bytes_ += num_bytes;
  if (options_.on_progress) options_.on_progress(read_bytes_, total_bytes_);
}

void Weights::finish() {
  if (upload_ != nullptr) {
    const int64_t least = upload_->least_buffer_bytes();
    if (options_.carrier == nullptr || options_.carrier->buffer_bytes() < least) {
      options_.carrier = make_carrier(options_.device, std::max(kStagingBytes, least));
    }
    upload_times_ = upload_->run(*options_.carrier, [&](int64_t done) {
      if (options_.on_progress) options_.on_progress(read_bytes_ + done, total_bytes_);
    });
    upload_.reset();
    options_.carrier.reset();
  }
  source_ = nullptr;
  if (options_.on_progress) options_.on_progress(total_bytes_, total_bytes_);
}

}  // namespace tessera::model
