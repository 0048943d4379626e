// What happens to a product before it is stored, as plain data.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// Strides count elements.
struct EpilogueParams {
  const void* bias;        // [n], of the type of a; null: none
  const void* residual;    // [batch, m, columns of out], of the type of a; null: none
  void* out;               // [batch, m, columns of out]
  const float* out_scale;  // one float; null: out is no code
  int64_t residual_stride;
  int64_t residual_batch_stride;
  int64_t out_stride;
  int64_t out_batch_stride;
  int m;
  int n;  // of the product; out has half as many columns where is_gated
  DType out_type;
  Activation activation;  // where has_activation
  bool has_activation;
  bool is_gated;
  bool is_plain;   // nothing but the product is asked for
  bool has_pairs;  // out and residual may be accessed two aligned elements at a time
};
static_assert(std::is_trivially_copyable_v<EpilogueParams>);

// Of checked arguments. `batch` strides are 0 for tensors of two axes.
inline EpilogueParams epilogue_params(const GemmArgs& args) {
  const TensorView& out = args.out;
  const auto batch_stride = [](const TensorView& t) { return t.rank == 3 ? t.stride(0) : 0; };
  EpilogueParams p{};
  p.bias = args.bias ? args.bias->data : nullptr;
  p.residual = args.residual ? args.residual->data : nullptr;
  p.out = out.data;
  p.out_scale = args.out_scale ? args.out_scale->as<float>() : nullptr;
  p.out_stride = out.stride(-2);
  p.out_batch_stride = batch_stride(out);
  if (args.residual) {
    p.residual_stride = args.residual->stride(-2);
    p.residual_batch_stride = batch_stride(*args.residual);
  }
  p.m = static_cast<int>(args.a.size(-2));
  p.n = static_cast<int>(args.b.size(-2));
  p.out_type = out.dtype;
  p.has_activation = args.activation.has_value();
  p.activation = args.activation.value_or(Activation::relu);
  p.is_gated = args.is_gated;
  p.is_plain = !p.bias && !p.residual && !p.out_scale && !p.has_activation;
  const auto is_paired = [](const void* data, int64_t element_bytes, int64_t stride,
                            int64_t batch_stride) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(2 * element_bytes) == 0 &&
           stride % 2 == 0 && batch_stride % 2 == 0;
  };
  p.has_pairs = is_paired(p.out, bit_width(out.dtype) / 8, p.out_stride, p.out_batch_stride) &&
                is_paired(p.residual, bit_width(args.a.dtype) / 8, p.residual_stride,
                          p.residual_batch_stride);
  return p;
}

}  // namespace tessera::kernels
