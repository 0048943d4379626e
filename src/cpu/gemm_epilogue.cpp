// Activation, gate, residual and codes behind a product, on rows of floats.
// SPDX-License-Identifier: MIT
#include "cpu/gemm_epilogue.h"

#include "cpu/activation_row.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/quant_code.h"

namespace tessera::cpu {
namespace {

// gated[i] = f(gate[i]) * up[i]; the row holds 8 of gate, the same 8 of up, and so on.
void gate_row(const float* row, int64_t num_cols, ActivateRow activate, float* gated) {
  constexpr int64_t kRows = kGateUpRows;
  for (int64_t i = 0; i < num_cols; i += kRows) {
    for (int64_t j = 0; j < kRows; ++j) gated[i + j] = row[2 * i + j];
  }
  activate(gated, num_cols);
  for (int64_t i = 0; i < num_cols; i += kRows) {
    for (int64_t j = 0; j < kRows; ++j) gated[i + j] *= row[2 * i + kRows + j];
  }
}

void add_residual(const TensorView& residual, int64_t row, int64_t num_cols, float* values) {
  with_float_type(residual.dtype, [&](auto type) {
    using T = decltype(type);
    const T* from = residual.as<T>() + row * residual.stride(0);
    for (int64_t i = 0; i < num_cols; ++i) values[i] += to_float(from[i]);
  });
}

template <class Code>
void store_codes(const float* values, int64_t num_cols, float factor, Code* out) {
  for (int64_t i = 0; i < num_cols; ++i) out[i] = byte_code<Code>(values[i] * factor);
}

// With the reciprocal of the scale, as quantize does.
void store(const GemmArgs& args, int64_t row, int64_t num_cols, const float* values) {
  const TensorView& out = args.out;
  const int64_t at = row * out.stride(0);
  const float factor = args.out_scale ? 1.0f / *args.out_scale->as<float>() : 1.0f;
  switch (out.dtype) {
    case DType::e4m3: return store_codes(values, num_cols, factor, out.as<E4m3>() + at);
    case DType::i8: return store_codes(values, num_cols, factor, out.as<int8_t>() + at);
    default:
      with_float_type(out.dtype, [&](auto type) {
        store_row(values, num_cols, out.as<decltype(type)>() + at);
      });
  }
}

}  // namespace

void finish_rows(const GemmArgs& args, float* products) {
  const int64_t n = args.b.size(0), num_cols = args.out.size(1);
  const ActivateRow activate = args.activation ? activate_row(*args.activation) : nullptr;
  for_each_row(args.out.size(0), n, num_cols, [&](int64_t row, float* gated) {
    float* values = products + row * n;
    if (args.is_gated) {
      gate_row(values, num_cols, activate, gated);
      values = gated;
    } else if (activate != nullptr) {
      activate(values, num_cols);
    }
    if (args.residual) add_residual(*args.residual, row, num_cols, values);
    store(args, row, num_cols, values);
  });
}

}  // namespace tessera::cpu
