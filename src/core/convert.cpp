// Converts whole tensors: strided runs pass through a small buffer of floats or 64-bit integers.
// SPDX-License-Identifier: MIT
#include "tessera/core/convert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "core/element.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

constexpr int64_t kChunk = 512;  // elements converted at a time; the buffer stays in L1

// Elements data[offset], data[offset + stride], ...
struct Run {
  void* data;
  int64_t offset;
  int64_t stride;
};

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> || std::is_same_v<T, I4x2>;

// The type of the buffer: 64-bit integers for integers, which would lose bits in a float.
template <class T>
using Carrier = std::conditional_t<kIsInteger<T>, int64_t, float>;

// `value` as a float that later narrows to f16 or less exactly as `value` itself would. If bits are
// lost, the last kept bit is set (round to odd), so that the later rounding does not take an
// inexact value for a tie or an exact one. Safe because 24 bits are many more than the 11 of f16.
float round_to_odd(int64_t value) {
  const uint64_t magnitude =
      value < 0 ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int lost = std::max(0, static_cast<int>(std::bit_width(magnitude)) - 24);
  const uint64_t kept = magnitude >> lost;
  const uint64_t sticky = (kept << lost) != magnitude ? 1 : 0;
  const float result = static_cast<float>((kept | sticky) << lost);
  return value < 0 ? -result : result;
}

template <class T>
T saturate(int64_t value) {
  constexpr int64_t kLow = std::numeric_limits<T>::min();
  constexpr int64_t kHigh = std::numeric_limits<T>::max();
  return static_cast<T>(std::clamp(value, kLow, kHigh));
}

template <class T>
T from_carrier(float value) {
  return from_float<T>(value);
}
template <class T>
T from_carrier(int64_t value) {
  if constexpr (std::is_integral_v<T>) {
    return saturate<T>(value);
  } else if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return from_float<T>(round_to_odd(value));
  }
}

int8_t i4_from_carrier(float value) { return i4_from_float(value); }
int8_t i4_from_carrier(int64_t value) {
  return static_cast<int8_t>(std::clamp<int64_t>(value, -8, 7));
}

template <class T>
Carrier<T> to_carrier(T value) {
  if constexpr (kIsInteger<T>) {
    return value;
  } else {
    return to_float(value);
  }
}

template <class T>
void load(const Run& run, int64_t begin, int64_t count, Carrier<T>* out) {
  const int64_t first = run.offset + begin * run.stride;
  if (run.stride == 1 && !std::is_same_v<T, I4x2>) {
    for (int64_t i = 0; i < count; ++i) out[i] = to_carrier(read_element<T>(run.data, first + i));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = to_carrier(read_element<T>(run.data, first + i * run.stride));
    }
  }
}

template <class T, class Value>
void store(const Run& run, int64_t begin, int64_t count, const Value* values) {
  const int64_t first = run.offset + begin * run.stride;
  if constexpr (std::is_same_v<T, I4x2>) {
    for (int64_t i = 0; i < count; ++i) {
      write_i4(run.data, first + i * run.stride, i4_from_carrier(values[i]));
    }
  } else if (run.stride == 1) {
    for (int64_t i = 0; i < count; ++i) {
      write_element(run.data, first + i, from_carrier<T>(values[i]));
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      write_element(run.data, first + i * run.stride, from_carrier<T>(values[i]));
    }
  }
}

template <class T>
void convert_run(const Run& from, DType to_dtype, const Run& to, int64_t count) {
  std::array<Carrier<T>, kChunk> buffer;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t part = std::min(kChunk, count - begin);
    load<T>(from, begin, part, buffer.data());
    with_storage(to_dtype, [&]<class To>(std::type_identity<To>) {
      store<To>(to, begin, part, buffer.data());
    });
  }
}

// Between equal dtypes bits are copied, so that a NaN keeps its payload.
template <class T>
void copy_run(const Run& from, const Run& to, int64_t count) {
  if constexpr (std::is_same_v<T, I4x2>) {
    convert_run<T>(from, DType::i4, to, count);
  } else if (from.stride == 1 && to.stride == 1) {
    std::memcpy(static_cast<T*>(to.data) + to.offset,
                static_cast<const T*>(from.data) + from.offset,
                static_cast<size_t>(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(static_cast<T*>(to.data) + to.offset + i * to.stride,
                  static_cast<const T*>(from.data) + from.offset + i * from.stride, sizeof(T));
    }
  }
}

int64_t dot(const std::array<int64_t, kMaxRank>& index, const TensorView& view) {
  int64_t offset = 0;
  for (int d = 0; d < view.rank; ++d) offset += index[static_cast<size_t>(d)] * view.stride(d);
  return offset;
}

void check(const TensorView& from, const TensorView& to) {
  if (!from.device.is_cpu() || !to.device.is_cpu()) {
    fail(concat("convert: from is ", to_string(from), " and to is ", to_string(to),
                "; copy both to the CPU first"));
  }
  if (!from.same_shape(to)) {
    fail(concat("convert: from is ", to_string(from), " and to is ", to_string(to),
                "; the shapes must be equal"));
  }
}

}  // namespace

void convert(const TensorView& from, const TensorView& to) {
  check(from, to);
  const int64_t num_elements = from.num_elements();
  if (num_elements == 0) return;
  const bool is_flat = from.is_contiguous() && to.is_contiguous();
  const int num_leading = is_flat ? 0 : from.rank - 1;
  const int64_t count = is_flat ? num_elements : from.size(-1);
  const int64_t from_stride = is_flat ? 1 : from.stride(-1);
  const int64_t to_stride = is_flat ? 1 : to.stride(-1);

  std::array<int64_t, kMaxRank> index{};
  for (int64_t run_idx = 0; run_idx < num_elements / count; ++run_idx) {
    const Run from_run{from.data, dot(index, from), from_stride};
    const Run to_run{to.data, dot(index, to), to_stride};
    with_storage(from.dtype, [&]<class T>(std::type_identity<T>) {
      if (from.dtype == to.dtype) {
        copy_run<T>(from_run, to_run, count);
      } else {
        convert_run<T>(from_run, to.dtype, to_run, count);
      }
    });
    for (int d = num_leading - 1; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < from.size(d)) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

}  // namespace tessera
