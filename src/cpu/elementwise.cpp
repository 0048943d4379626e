// Activations, softmax, embedding, reductions and argmax on the CPU.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/text.h"
#include "cpu/activation_row.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/reduce_row.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

template <class F>
void apply_each(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = F{}(values[i]);
}

struct Relu {
  float operator()(float x) const { return x < 0.0f ? 0.0f : x; }  // NaN stays NaN
};

// x / (1 + exp(-v)). The exponential of a negative number cannot overflow, so small results keep
// their relative accuracy.
float times_sigmoid(float x, float v) {
  const float t = std::exp(-std::fabs(v));
  return (v < 0.0f ? x * t : x) / (1.0f + t);
}

// Phi(x) is half of erfc(-x / sqrt(2)); 1 + erf would cancel for negative x.
struct Gelu {
  float operator()(float x) const { return x * (0.5f * std::erfc(x * -0.70710678118654752f)); }
};

// 0.5 x (1 + tanh(u)) is x sigmoid(2u), which does not cancel for negative x.
struct GeluTanh {
  float operator()(float x) const {
    const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return times_sigmoid(x, 2.0f * u);
  }
};

template <class T>
void activate_rows(const ActivationArgs& args) {
  const ActivateRow activate = activate_row(args.kind);
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  const Rows up = args.up ? as_rows(*args.up, "up") : Rows{};
  // Conversions go through scratch memory, so that they vectorise even if the function does not.
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    activate(values, x.num_cols);
    if (args.up) {
      const T* by = args.up->as<T>() + row * up.row_stride;
      for (int64_t i = 0; i < x.num_cols; ++i) values[i] *= to_float(by[i]);
    }
    store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
  });
}

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// A hidden element becomes minus infinity even if x is NaN there.
void apply_mask(const TensorView& mask, int64_t row, int64_t num_cols, float* values) {
  const Rows rows = as_rows(mask, "mask");
  const int64_t offset = row % rows.num_rows * rows.row_stride;
  if (mask.dtype == DType::u8) {
    const uint8_t* visible = mask.as<uint8_t>() + offset;
    for (int64_t i = 0; i < num_cols; ++i) values[i] = visible[i] != 0 ? values[i] : kHidden;
  } else {
    const float* added = mask.as<float>() + offset;
    for (int64_t i = 0; i < num_cols; ++i) {
      values[i] = added[i] == kHidden ? kHidden : values[i] + added[i];
    }
  }
}

// The largest element, ignoring NaN: a NaN reappears in the sum.
float largest(const float* values, int64_t count) {
  float result = kHidden;
  for (int64_t i = 0; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

bool has_nan(const float* values, int64_t count) {
  return std::any_of(values, values + count, [](float value) { return std::isnan(value); });
}

void softmax_row(float* values, int64_t count) {
  const float top = largest(values, count);
  if (top == kHidden && !has_nan(values, count)) {
    std::fill(values, values + count, 0.0f);
    return;
  }
  for (int64_t i = 0; i < count; ++i) values[i] = std::exp(values[i] - top);
  const double sum = sum_row(values, count, [](float value) { return double{value}; });
  const float inverse = static_cast<float>(1.0 / sum);
  for (int64_t i = 0; i < count; ++i) values[i] *= inverse;
}

template <class T>
void softmax_rows(const SoftmaxArgs& args) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    for (int64_t i = 0; i < x.num_cols; ++i) values[i] *= args.scale;
    if (args.mask) apply_mask(*args.mask, row, x.num_cols, values);
    softmax_row(values, x.num_cols);
    store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
  });
}

int64_t id_at(const EmbeddingArgs& args, int64_t token) {
  const int64_t id =
      args.ids.dtype == DType::i32 ? args.ids.as<int32_t>()[token] : args.ids.as<int64_t>()[token];
  if (id >= 0 || !args.computed || -1 - id >= args.computed->size(0)) return id;
  return std::max(args.computed->as<int32_t>()[-1 - id], 0);
}

// Runs before anything is written, so that a refused call changes nothing.
void check_ids(const EmbeddingArgs& args, int64_t num_tokens) {
  const int64_t vocab = args.table.size(0);
  for (int64_t token = 0; token < num_tokens; ++token) {
    const int64_t id = id_at(args, token);
    if (id >= 0 && id < vocab) continue;
    fail(concat("embedding: ids[", token, "] is ", id, "; the table has ", vocab,
                " rows, so ids run from 0 to ", vocab - 1));
  }
}

// Keeps the element that is_better prefers, or NaN if there is one.
template <class Better>
float extreme(const float* row, int64_t count, float start, Better&& is_better) {
  float result = start;
  bool has_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    result = is_better(row[i], result) ? row[i] : result;
    has_nan |= row[i] != row[i];
  }
  return has_nan ? std::numeric_limits<float>::quiet_NaN() : result;
}

float reduce_row(Reduction kind, float* row, int64_t count) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto greater = [](float a, float b) { return a > b; };
  const auto less = [](float a, float b) { return a < b; };
  const auto itself = [](float value) { return double{value}; };
  switch (kind) {
    case Reduction::sum: return static_cast<float>(sum_row(row, count, itself));
    case Reduction::mean:
      return static_cast<float>(sum_row(row, count, itself) / static_cast<double>(count));
    case Reduction::max: return extreme(row, count, -kInfinity, greater);
    case Reduction::min: return extreme(row, count, kInfinity, less);
    case Reduction::absmax:
      for (int64_t i = 0; i < count; ++i) row[i] = std::fabs(row[i]);
      return extreme(row, count, 0.0f, greater);
  }
  return 0.0f;
}

// The first of the largest elements; NaN counts as larger than any number.
int64_t argmax_row(const float* row, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (row[i] != row[i]) return i;
    if (row[i] > row[best]) best = i;
  }
  return best;
}

}  // namespace

ActivateRow activate_row(Activation kind) {
  switch (kind) {
    case Activation::relu: return &apply_each<Relu>;
    case Activation::silu: return silu_row_builds().best();
    case Activation::gelu: return &apply_each<Gelu>;
    case Activation::gelu_tanh: return &apply_each<GeluTanh>;
  }
  fail("the CPU was handed an activation that it does not have");
}

void activation(const ActivationArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { activate_rows<decltype(type)>(args); });
}

void softmax(const SoftmaxArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { softmax_rows<decltype(type)>(args); });
}

void embedding(const EmbeddingArgs& args) {
  const Rows out = as_rows(args.out, "out");
  check_ids(args, out.num_rows);
  const int64_t element_bytes = bit_width(args.table.dtype) / 8;
  const size_t row_bytes = static_cast<size_t>(out.num_cols * element_bytes);
  parallel_for(out.num_rows, out.num_cols, [&](int64_t token) {
    const int64_t from = id_at(args, token) * args.table.stride(0) * element_bytes;
    const int64_t to = token * out.row_stride * element_bytes;
    if (row_bytes > 0) {
      std::memcpy(args.out.as<char>() + to, args.table.as<char>() + from, row_bytes);
    }
  });
}

void reduce(const ReduceArgs& args) {
  const Rows x = as_rows(args.x, "x");
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
      args.out.as<float>()[row] = reduce_row(args.kind, values, x.num_cols);
    });
  });
}

void argmax(const ArgmaxArgs& args) {
  const Rows x = as_rows(args.x, "x");
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
      const int64_t index = argmax_row(values, x.num_cols);
      if (args.out.dtype == DType::i32) {
        args.out.as<int32_t>()[row] = static_cast<int32_t>(index);
      } else {
        args.out.as<int64_t>()[row] = index;
      }
    });
  });
}

}  // namespace tessera::cpu
