// Checks of a call's tensors, one function per rule. A refusal shows the tensor and the remedy; if
// the rules hold, nothing is formatted or allocated.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "tessera/core/tensor.h"

namespace tessera::ops {

// Kernels index within a row with 32-bit integers.
inline constexpr int64_t kMaxCols = int64_t{1} << 30;

// A tensor and its name in messages: {"rms_norm: x", args.x}.
struct Named {
  std::string_view what;
  const TensorView& view;
};

// A set of element types, one bit each.
struct DTypeSet {
  uint32_t bits = 0;

  constexpr DTypeSet(std::initializer_list<DType> types) {
    for (DType type : types) bits |= 1u << static_cast<int>(type);
  }
  constexpr DTypeSet with(DType type) const {
    DTypeSet more = *this;
    more.bits |= 1u << static_cast<int>(type);
    return more;
  }
  constexpr bool has(DType type) const { return (bits >> static_cast<int>(type) & 1u) != 0; }
};

inline constexpr DTypeSet kFloats = {DType::f32, DType::f16, DType::bf16};
inline constexpr DTypeSet kCodes = {DType::i8, DType::u8, DType::i4, DType::e4m3, DType::e5m2};
inline constexpr DTypeSet kIndices = {DType::i32, DType::i64};
inline constexpr DTypeSet kWholeBytes = {DType::f32,  DType::f16,  DType::bf16,
                                         DType::e4m3, DType::e5m2, DType::i8,
                                         DType::u8,   DType::i32,  DType::i64};

// A valid view of one of these types: rank and sizes in range, not null, i4 in whole bytes.
void expect_tensor(const Named& tensor, DTypeSet types);
// The same, and on the device of `first`.
void expect_tensor(const Named& tensor, DTypeSet types, const Named& first);

void expect_rank(const Named& tensor, int rank);
void expect_dtype_of(const Named& tensor, const Named& other);
void expect_shape_of(const Named& tensor, const Named& other);
void expect_contiguous(const Named& tensor);
// u8 codes need a zero point, i8 and FP8 have none, and i4 may have one.
void expect_zero_point(const Named& codes, bool has_zero_point);
// 16 contiguous floats beside codes of i4 that have no zero points. They can be read only on the
// CPU, where they must be finite.
void expect_table(const Named& codes, const Named& table, bool has_zero_point);
// Contiguous, with `count` elements in any shape: "[rows]" may be given as [batch, seq].
void expect_one_each(const Named& tensor, int64_t count, std::string_view of_what);
// The leading axes fold into rows with one stride; at most kMaxCols columns.
Rows expect_rows(const Named& tensor);

// No element of a written tensor may belong to two indices, as with a stride of 0.
void expect_writable(const Named& tensor);
// Shares no memory with `other`.
void expect_apart(const Named& out, const Named& other);
// Is exactly `other`, element for element, or shares no memory with it.
void expect_same_or_apart(const Named& out, const Named& other);

// Is exactly `other`: the same memory, type, shape and strides.
void expect_same_tensor(const Named& tensor, const Named& other);

// Whether two views certainly share an element. Views whose axes do not fold into rows of one
// stride are compared by their first element only.
bool overlap(const TensorView& a, const TensorView& b);

}  // namespace tessera::ops
