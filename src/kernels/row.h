// A row: one compiled kernel, what it takes and how to launch it. Dispatch, supports(), the tests,
// the benches and the documents all read the same tables of rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/library.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"
#include "tessera/ops/weight.h"

namespace tessera {

// The types a compiled kernel is for; key_of(args) makes the same for a call.
struct RowKey {
  DType in = DType::f32;
  DType out = DType::f32;
  DType weight = DType::f32;  // type of a matrix product's b; for other operations that of `in`
  Packing packing = Packing::rows;  // layout of that b
  bool has_table = false;           // its codes are indices of a table

  constexpr RowKey() = default;
  constexpr RowKey(DType in_, DType out_) : RowKey(in_, out_, in_) {}
  constexpr RowKey(DType in_, DType out_, DType weight_, Packing packing_ = Packing::rows)
      : in(in_), out(out_), weight(weight_), packing(packing_) {}
  // The same, of a weight whose codes are indices of a table.
  constexpr RowKey with_table() const {
    RowKey key = *this;
    key.has_table = true;
    return key;
  }
  bool operator==(const RowKey&) const = default;
};

// A short text that is built at compile time: label_of("d", 128) is "d128".
struct Label {
  std::array<char, 40> text{};
  size_t size = 0;

  constexpr Label() = default;
  constexpr Label(std::string_view from) { add(from); }
  constexpr Label(const char* from) { add(from); }
  constexpr void add(std::string_view part) {
    for (const char c : part) text.at(size++) = c;  // too long: fails to compile
  }
  constexpr void add(std::integral auto number) {
    if (number >= 10) add(number / 10);
    text.at(size++) = static_cast<char>('0' + number % 10);
  }
  constexpr void add(DType type) { add(name(type)); }
  constexpr bool empty() const { return size == 0; }
  constexpr operator std::string_view() const { return {text.data(), size}; }
};
template <class... Parts>
constexpr Label label_of(const Parts&... parts) {
  Label label;
  (label.add(parts), ...);
  return label;
}

// The types of a row in its name: "bf16", "bf16_e4m3" for another out, "bf16_wi4" for another
// weight, "bf16_wi4_table" for one with a table.
constexpr Label types_of(RowKey key) {
  Label label = label_of(key.in);
  if (key.weight != key.in) label.add("_w"), label.add(key.weight);
  if (key.out != key.in) label.add("_"), label.add(key.out);
  if (key.packing != Packing::rows) label.add("_"), label.add(name(key.packing));
  if (key.has_table) label.add("_table");
  return label;
}

// Rewrites a weight in Packing::rows into the packing of `packed`, whose tensors have the same
// shapes and types.
using PackWeight = void (*)(const Weight& rows, const Weight& packed, const Context& ctx);

template <class Args>
struct Row {
  std::string_view op;  // "rms_norm"
  Library library;
  RowKey key;
  void (*launch)(const Args&, const Context&);
  Label label = {};                        // replaces the types in the name, if given
  bool (*accepts)(const Args&) = nullptr;  // a condition beyond the key; null: none
  bool is_batch_invariant = true;
  bool (*yields)(const Args&) = nullptr;  // whether a vendor's row, if there is one, is faster
  PackWeight pack = nullptr;              // given exactly if key.packing is not `rows`

  // "rms_norm_bf16_e4m3", "rms_norm_sm90_bf16".
  std::string name() const {
    std::string text(op);
    if (library == Library::sm90) text += "_sm90";
    text += '_';
    return text += std::string_view(label.empty() ? types_of(key) : label);
  }
  bool takes(const Args& args, RowKey args_key) const {
    return key == args_key && (accepts == nullptr || accepts(args));
  }
};

// Several arrays of rows as one table.
template <class T, size_t... kSizes>
constexpr auto joined(const std::array<T, kSizes>&... parts) {
  std::array<T, (kSizes + ...)> all{};
  size_t at = 0;
  const auto add = [&](const auto& part) {
    for (const T& row : part) all[at++] = row;
  };
  (add(parts), ...);
  return all;
}

}  // namespace tessera
