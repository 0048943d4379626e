// Matrix product with a weight, and all that may be fused behind it: what every linear layer calls.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/activation.h"

namespace tessera {

//   d = a[m, k] . b[n, k]^T                 accumulated in float
//   d = d + bias
//   d = activation(d)                       plain, or with is_gated
//       activation(gate) * up               of the pairs of rows that pack_gate_up interleaved
//   d = d + residual
//   out = d, or d / out_scale as a code     rounded once; codes saturate
// each line only where its argument is given. With three axes a is [batch, m, k], out and residual
// likewise, and b is [batch, n, k] or one [n, k] for all.
//
// b holds the type of a, or int8 codes with a scale per output or per group of k:
//   b_scale [n]         b[j, i] stands for code * b_scale[j]
//   b_scale [n, k / g]  b[j, i] stands for code * b_scale[j, i / g]
// Row i of out depends on row i of a alone, and under Context::batch_invariant bit for bit on
// nothing else, m included. m, n, k or batch may be 0; over no k the product is 0.
// Error: within 1 ulp of the output type of the exact result, plus k * 2^-22 * sum |a| |b|; an
// activation of 16-bit operands adds 2^-14 of its value; with allow_tf32 the factors of f32 are
// rounded to 11 bits first.
struct GemmArgs {
  TensorView a;                               // [m, k]; f32, f16 or bf16; rows may be apart
  TensorView b;                               // [n, k]; dtype of a, or i8; rows may be apart
  std::optional<TensorView> b_scale = {};     // f32, contiguous; given exactly for i8
  std::optional<TensorView> bias = {};        // [n], dtype of a, contiguous
  TensorView out;                             // [m, n], gated [m, n / 2]; dtype of a, f32; or, with
                                              // out_scale, e4m3 or i8; rows may be apart
  std::optional<Activation> activation = {};  // none where empty
  bool is_gated = false;                      // needs activation, and n a multiple of 16
  std::optional<TensorView> residual = {};    // shape of out, dtype of a; may be out itself
  std::optional<TensorView> out_scale = {};   // f32 [1]; given exactly for codes
  bool allow_tf32 = false;                    // f32 operands may pass the tensor cores as tf32
  bool is_b_static = false;                   // no work still queued writes b: it may be read early
};

void gemm(const GemmArgs& args, const Context& ctx = {});
bool supports(const GemmArgs& args, const Context& ctx = {});

// The weights of gate and up as the one b that a gated product takes: 8 rows of gate, the same 8 of
// up, and so on, so that a thread of a kernel holds both halves of its outputs.
inline constexpr int64_t kGateUpRows = 8;
struct PackGateUpArgs {
  TensorView gate;  // [inter, k]; inter a multiple of 8; any type, rows may be apart
  TensorView up;    // the same
  TensorView out;   // [2 * inter, k], dtype of gate
};
void pack_gate_up(const PackGateUpArgs& args, const Context& ctx = {});

}  // namespace tessera
