// What makers share: random numbers by index, operands cut out of poisoned storage, error units.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "bench/problem.h"
#include "core/parallel.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::bench {

// Random numbers as a function of (seed, index), so that filling is parallel and repeatable.
struct Random {
  uint64_t seed;

  uint64_t bits(int64_t index) const {  // splitmix64
    uint64_t z = seed + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  int64_t integer(int64_t index, int64_t lowest, int64_t highest) const {
    const auto span = static_cast<uint64_t>(highest - lowest + 1);
    return lowest + static_cast<int64_t>((bits(index) >> 20) % span);
  }
  float sign(int64_t index) const { return (bits(index) & (1ULL << 40)) != 0 ? 1.0f : -1.0f; }
  float normal(int64_t index) const {  // Box and Muller
    const uint64_t z = bits(index);
    const float u = (static_cast<float>(z >> 40) + 0.5f) * 0x1p-24f;
    const float angle = static_cast<float>(z & 0xffffff) * (0x1p-24f * 6.2831853f);
    return std::sqrt(-2.0f * std::log(u)) * std::cos(angle);
  }
  Random stream(uint64_t index) const { return {bits(static_cast<int64_t>(~index))}; }
};

// The contents of unwritten memory: NaN in floating-point types, an unlikely value in integers.
constexpr uint8_t poison_byte(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::e4m3:
    case DType::e5m2: return 0xff;
    default: return 0x85;
  }
}

// Largest relative error of one rounding to the type.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0x1p-24;
  }
}
// Below this a rounding has an absolute error, not a relative one.
constexpr double smallest_step(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : 0x1p-126; }

// Relative error of a float sum of n terms of one sign, against the exact sum: a thread adds at
// least every 128th term in turn, then a tree; implementations with more threads do better.
constexpr double sum_error(int64_t n) { return (static_cast<double>(n) / 128.0 + 16.0) * 0x1p-24; }

// Two values `relative` apart (in float, relative to the result) and then rounded once each.
constexpr Bound rounded_twice(DType dtype, double relative, double absolute = 0) {
  return {.absolute = absolute + smallest_step(dtype),
          .relative = 2.0 * unit_roundoff(dtype) + relative};
}

constexpr bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

class Builder {
 public:
  // Refuses a shape with a name that is not in `names`: a misspelt option must not pass silently.
  Builder(const Shape& shape, Fill fill, uint64_t seed,
          std::initializer_list<std::string_view> names);

  // A matrix of the problem's rows, laid out by the shape's "stride" (elements from row to row;
  // absent or 0: contiguous) and "offset" (elements before the first; absent: none).
  Operand& rows(std::string_view name, Role role, DType dtype, int64_t num_rows, int64_t num_cols,
                Bound bound = {});
  // Contiguous; `offset` applies too unless the operation needs natural alignment only.
  Operand& dense(std::string_view name, Role role, DType dtype, std::vector<int64_t> shape,
                 Bound bound = {});
  Operand& strided(std::string_view name, Role role, DType dtype, std::vector<int64_t> shape,
                   std::vector<int64_t> strides, int64_t num_storage, Bound bound = {});

  int64_t get(std::string_view name, int64_t otherwise = 0) const {
    expects(!is_finished_, "problem: options are gone after finish; read them before");
    return value_of(problem_.shape, name, otherwise);
  }
  bool is_normal() const { return problem_.fill == Fill::normal; }
  Random random() { return Random{problem_.seed}.stream(num_streams_++); }

  // Bytes moved once each: every input and output, in_out twice. Makers that move less say so.
  double operand_bytes() const;

  Problem finish(decltype(Problem::call) call, double flops, std::string_view row_dim);

 private:
  Problem problem_;
  bool is_finished_ = false;
  uint64_t num_streams_ = 0;
};

inline void store(const TensorView& storage, int64_t index, float value) {
  switch (storage.dtype) {
    case DType::f32: storage.as<float>()[index] = value; break;
    case DType::f16: storage.as<F16>()[index] = from_float<F16>(value); break;
    case DType::bf16: storage.as<Bf16>()[index] = from_float<Bf16>(value); break;
    case DType::e4m3: storage.as<E4m3>()[index] = from_float<E4m3>(value); break;
    case DType::e5m2: storage.as<E5m2>()[index] = from_float<E5m2>(value); break;
    case DType::i8: storage.as<int8_t>()[index] = static_cast<int8_t>(value); break;
    case DType::u8: storage.as<uint8_t>()[index] = static_cast<uint8_t>(value); break;
    case DType::i32: storage.as<int32_t>()[index] = static_cast<int32_t>(value); break;
    case DType::i64: storage.as<int64_t>()[index] = static_cast<int64_t>(value); break;
    case DType::i4: {
      uint8_t& byte = storage.as<uint8_t>()[index / 2];
      const auto nibble = static_cast<uint8_t>(static_cast<int>(value) & 15);
      byte = static_cast<uint8_t>(index % 2 == 0 ? (byte & 0xf0) | nibble
                                                 : (byte & 0x0f) | (nibble << 4));
      break;
    }
  }
}

// Sets element (row, column) to f(row, column); axes after the first count as columns and must be
// contiguous. i4 rows start on a byte, so rows may be filled in parallel.
template <class F>
void fill_rows(Operand& operand, const F& f) {
  if (operand.host.size_bytes() == 0) return;
  const int64_t num_rows = operand.shape[0];
  int64_t num_cols = 1;
  for (size_t d = 1; d < operand.shape.size(); ++d) num_cols *= operand.shape[d];
  const int64_t stride = operand.strides[0];
  parallel_for(num_rows, num_cols, [&](int64_t r) {
    for (int64_t c = 0; c < num_cols; ++c) {
      store(operand.host.view(), operand.offset + r * stride + c, f(r, c));
    }
  });
}

// The same over a vector.
template <class F>
void fill_vector(Operand& operand, const F& f) {
  if (operand.host.size_bytes() == 0) return;
  for (int64_t i = 0; i < operand.shape[0]; ++i) {
    store(operand.host.view(), operand.offset + i, f(i));
  }
}

// What the option "special" puts among a problem's data; 0 is none of them.
inline constexpr int64_t kSpecialNan = 1, kSpecialInfinity = 2, kSpecialMinusInfinity = 3;
inline constexpr int64_t kSpecials[] = {kSpecialNan, kSpecialInfinity, kSpecialMinusInfinity};
inline float special_value(int64_t special) {
  if (special == kSpecialNan) return std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  return special == kSpecialInfinity ? infinity : -infinity;
}

inline void fill_normal(Operand& operand, Random random, float scale = 1.0f) {
  int64_t num_cols = 1;
  for (size_t d = 1; d < operand.shape.size(); ++d) num_cols *= operand.shape[d];
  fill_rows(operand, [=](int64_t r, int64_t c) { return scale * random.normal(r * num_cols + c); });
}

// value(0), value(1), ... as elements of a type, repeated after the first million: computing random
// normal values for a billion elements would take longer than everything else.
class RepeatingValues {
 public:
  template <class Value>
  RepeatingValues(DType dtype, int64_t count, const Value& value)
      : count_(std::min(kPeriod, count)), values_(dtype, {count_}) {
    parallel_for(count_, 1, [&](int64_t i) { store(values_, i, value(i)); });
  }

  // `count` of them from the `first` on, to element `place` of a storage of the same type.
  void copy(int64_t first, int64_t count, const TensorView& storage, int64_t place) const {
    const DType dtype = values_.view().dtype;
    char* to = storage.as<char>() + storage_bytes(dtype, place);
    int64_t from = count_ == 0 ? 0 : first % count_;
    for (int64_t left = count; left > 0;) {
      const int64_t run = std::min(left, count_ - from);
      const int64_t num_bytes = storage_bytes(dtype, run);
      std::memcpy(to, values_.view().as<char>() + storage_bytes(dtype, from),
                  static_cast<size_t>(num_bytes));
      to += num_bytes;
      left -= run;
      from = 0;
    }
  }

 private:
  static constexpr int64_t kPeriod = 1'048'583;  // a prime: rows begin at different places
  int64_t count_;
  Tensor values_;
};

// The types most operations take.
inline constexpr DType kFloats[] = {DType::bf16, DType::f16, DType::f32};

}  // namespace tessera::bench
