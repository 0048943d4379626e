// Shapes, placed views and row subsets of problems, and the list of makers.
// SPDX-License-Identifier: MIT
#include "bench/problem.h"

#include <algorithm>

#include "bench/problems/makers.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {

std::string to_string(const Shape& shape) {
  std::string text;
  for (const auto& [name, value] : shape) {
    text += concat(text.empty() ? "" : " ", name, "=");
    if (const auto value_name = name_of_value(name, value)) {
      text += *value_name;
    } else {
      text += std::to_string(value);
    }
  }
  return text;
}

std::optional<std::string_view> name_of_value(std::string_view option_name, int64_t value) {
  const auto index = static_cast<size_t>(value);
  if (option_name.ends_with("_format") && index < std::size(kKvFormats)) {
    return kKvFormats[index].name;
  }
  if (option_name.ends_with("_dtype") && index < std::size(kAllDTypes)) {
    return name(kAllDTypes[index]);
  }
  return std::nullopt;
}

int64_t value_of_name(std::string_view option_name, std::string_view value) {
  for (int64_t i = 0; const auto known = name_of_value(option_name, i); ++i) {
    if (*known == value) return i;
  }
  fail(concat("bench: ", option_name, " is '", value, "', which is no name of a ",
              option_name.ends_with("_dtype") ? "dtype" : "KV format"));
}

int64_t value_of(const Shape& shape, std::string_view name, int64_t otherwise) {
  const auto it = std::ranges::find_if(shape, [&](const auto& e) { return e.first == name; });
  return it == shape.end() ? otherwise : it->second;
}

Shape with_value(Shape shape, std::string_view name, int64_t value) {
  const auto it = std::ranges::find_if(shape, [&](const auto& e) { return e.first == name; });
  if (it == shape.end()) {
    shape.emplace_back(name, value);
  } else {
    it->second = value;
  }
  return shape;
}

TensorView Operand::place(void* storage, Device device) const {
  TensorView view = TensorView::contiguous(storage, host.view().dtype, shape, device);
  std::ranges::copy(strides, view.strides.begin());
  view.data = static_cast<char*>(storage) + storage_bytes(view.dtype, offset);
  return view;
}

const std::vector<ProblemMaker>& problem_makers() {
  static const std::vector<ProblemMaker> makers = [] {
    std::vector<ProblemMaker> list;
    list.push_back(rms_norm_maker());
    list.push_back(layer_norm_maker());
    list.push_back(rope_maker());
    list.push_back(activation_maker());
    list.push_back(softmax_maker());
    list.push_back(embedding_maker());
    list.push_back(copy_maker());
    list.push_back(quantize_maker());
    list.push_back(dequantize_maker());
    list.push_back(reduce_maker());
    list.push_back(argmax_maker());
    list.push_back(scale_maker());
    list.push_back(gemm_maker());
    list.push_back(norm_gemm_maker());
    list.push_back(gemm_2_4_maker());
    list.push_back(attention_prefill_maker());
    list.push_back(attention_decode_maker());
    list.push_back(attention_append_maker());
    list.push_back(attention_merge_maker());
    list.push_back(attention_cascade_maker());
    list.push_back(kv_append_maker());
    list.push_back(kv_gather_maker());
    list.push_back(kv_copy_pages_maker());
    list.push_back(sample_maker());
    list.push_back(token_logprobs_maker());
    return list;
  }();
  return makers;
}

const ProblemMaker* find_maker(std::string_view op) {
  const auto& makers = problem_makers();
  const auto it = std::ranges::find(makers, op, &ProblemMaker::op);
  return it == makers.end() ? nullptr : &*it;
}

namespace {

// The operands at made-up addresses: to ask whether a call is taken, never to run it.
std::vector<TensorView> place_nowhere(const Problem& problem, Device device) {
  constexpr uintptr_t kApart = uintptr_t{1} << 42;  // beyond any operand, and aligned for all
  std::vector<TensorView> views;
  uintptr_t address = 0;
  for (const Operand& operand : problem.operands) {
    address += kApart;
    views.push_back(operand.place(reinterpret_cast<void*>(address), device));
  }
  return views;
}

}  // namespace

bool is_taken(const Problem& problem, Device device, const Context& ctx) {
  return !problem.is_supported || problem.is_supported(place_nowhere(problem, device), ctx);
}

std::string served_row(const Problem& problem, Device device) {
  return problem.served_row ? problem.served_row(place_nowhere(problem, device)) : std::string();
}

Problem take_rows(const ProblemMaker& maker, RowKey key, const Problem& from,
                  std::span<const int64_t> rows) {
  expects(!from.row_dim.empty(), "take_rows: the rows of this problem depend on each other");
  const Shape shape = with_value(from.shape, from.row_dim, static_cast<int64_t>(rows.size()));
  Problem part = maker.make(key, shape, from.fill, from.seed);
  for (size_t i = 0; i < part.operands.size(); ++i) {
    const Operand& source = from.operands[i];
    Operand& target = part.operands[i];
    target.bound = source.bound;
    const DType dtype = source.host.view().dtype;
    char* to = target.host.view().as<char>();
    const char* start = source.host.view().as<char>();
    if (source.role == Role::scratch) continue;
    if (!source.is_per_row) {
      expects_equal(target.host.size_bytes(), source.host.size_bytes(), source.name);
      std::copy_n(start, source.host.size_bytes(), to);
      continue;
    }
    const int64_t row_bytes = storage_bytes(dtype, source.strides[0]);
    const int64_t offset_bytes = storage_bytes(dtype, source.offset);
    for (size_t r = 0; r < rows.size(); ++r) {
      std::copy_n(start + offset_bytes + rows[r] * row_bytes, row_bytes,
                  to + offset_bytes + static_cast<int64_t>(r) * row_bytes);
    }
  }
  return part;
}

}  // namespace tessera::bench
