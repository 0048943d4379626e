// Matrix product with a weight, and what may be fused behind it: what every linear layer calls.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/weight.h"

namespace tessera {

//   d = a[m, k] . b[n, k]^T                 accumulated in float; codes of i8 exactly
//   d = d + bias
//   d = activation(d)                       plain, or with is_gated
//       activation(gate) * up               of the pairs of rows that pack_gate_up interleaved
//   d = d + residual
//   out = d, or d / out_scale as a code     rounded once; codes saturate, as in quantize.h
// each line only where its argument is given. With three axes a is [batch, m, k], out and residual
// likewise, and b is [batch, n, k] or one [n, k] for all.
//
// b is dense, of the type of a, or quantised (weight.h). The CPU takes every quantised form and
// every packing; a GPU takes those of its rows.
//
// With a_scale, a holds codes too, as quantize writes them, and b codes of the same type, or i4
// beside an a of i8 or e4m3:
//   a[i, l] = (code - a_zero_point) * a_scale
// a_scale is [1] for all of a, [m] for each row (per token), or [m, k / 128] for groups of 128.
// Then bias and residual have the type value_type(args). i8, i4: sums of codes are integers, so the
// product differs from the exact one by 2^-22 of it, or by k / 128 * 2^-22 * sum |a| |b| where a
// scale changes along k. e4m3: tensor cores add with 13 bits or more below the largest term, so the
// product is within (k / 32 + 4) * 2^-13 * sum |a| |b|; with sums_in_float, or scales that change
// along k, only 128 elements are added that way: within 8 * 2^-13 * sum |a| |b|.
// Row i of out depends on row i of a alone, and under Context::batch_invariant bit for bit on
// nothing else, m included. m, n, k or batch may be 0; over no k the product is 0. Error: the
// product within k * 2^-22 * sum |a| |b| of the exact values (codes - zero_point) * scale; on a CPU
// with VNNI, i4 with 16-bit a adds 2^-23 * sum |a'| |b|, a' the largest of 8 aligned elements. A
// CPU multiplies by the floats of b's table; a GPU rounds each of them once to the type of a, which
// adds 2^-9 * sum |a| |b| in bf16, 2^-12 * sum |a| |b| in f16 (values from 2^-14 to 65504, and 0),
// and nothing where the type holds them, as it holds those of MXFP4. Each later line within 2^-22
// of its value, an activation within 2^-14 for 16-bit operands, or as activation.h says for f32;
// out within 1 ulp. allow_tf32 rounds the factors to 11 bits first.
struct GemmArgs {
  TensorView a;                               // [m, k]; f32, f16 or bf16; or, with a_scale, i8 or
                                              // e4m3, u8 or i4; rows may be apart
  WeightArg b;                                // [n, k]; a TensorView of the type of a, or a Weight
  std::optional<TensorView> bias = {};        // [n], dtype of a, contiguous
  TensorView out;                             // [m, n], gated [m, n / 2]; dtype of a, f32; or, with
                                              // out_scale, e4m3 or i8; rows may be apart
  std::optional<Activation> activation = {};  // none where empty
  bool is_gated = false;                      // needs activation, and n a multiple of 16
  std::optional<TensorView> residual = {};    // shape of out, dtype of a; may be out itself
  std::optional<TensorView> out_scale = {};   // f32 [1]; given exactly for codes
  bool allow_tf32 = false;                    // f32 operands may pass the tensor cores as tf32
  std::optional<TensorView> a_scale = {};     // f32 [1], [m] or [m, k / 128], contiguous
  std::optional<TensorView> a_zero_point = {};  // i32 [1] or [m], for i8 whose scale is no group's
  bool sums_in_float = false;                   // e4m3: add 128 elements at a time in float
};

// The type of bias and residual, and of 16-bit results. Beside codes it follows from out: f16 for
// f16, bf16 for all others; f32 for an out of f32 whose bias or residual is f32, on the CPU alone.
inline DType value_type(const GemmArgs& args) {
  if (!args.a_scale) return args.a.dtype;
  const auto is_f32 = [](const std::optional<TensorView>& t) {
    return t && t->dtype == DType::f32;
  };
  if (args.out.dtype == DType::f32 && (is_f32(args.bias) || is_f32(args.residual))) {
    return DType::f32;
  }
  return args.out.dtype == DType::f16 ? DType::f16 : DType::bf16;
}

void gemm(const GemmArgs& args, const Context& ctx = {});
bool supports(const GemmArgs& args, const Context& ctx = {});

// The packing of b that the best row for these arguments takes; args.b is in Packing::rows. A
// loader asks once per weight and packs it.
Packing preferred_packing(const GemmArgs& args, const Context& ctx = {});

// The sums of a weight's codes over k, for products whose a has zero points.
struct SumWeightRowsArgs {
  TensorView values;  // i8 [n, k]
  TensorView out;     // f32 [n]; exact up to 2^24
};
void sum_weight_rows(const SumWeightRowsArgs& args, const Context& ctx = {});

// Rewrites a quantised weight from Packing::rows into another packing, or back, on the device it is
// on. Packing and unpacking gives the same bytes again, with one exception: where the packed weight
// has bf16 or f16 scales, packing rounds the f32 scales to nearest even.
struct PackWeightArgs {
  Weight weight;
  // Its packing says what is asked for. Shapes and types are those of `weight`, except that packed
  // scales may be f32, bf16 or f16, and zero points i32 or u8; packed on a GPU they must be u8.
  Weight out;
};
void pack_weight(const PackWeightArgs& args, const Context& ctx = {});

// The weights of gate and up as the one b that a gated product takes: 8 rows of gate, the same 8 of
// up, and so on, so that a thread of a kernel holds both halves of its outputs. Scales and zero
// points, if there are any, go with their rows. A bias of a gated product is in the same order.
inline constexpr int64_t kGateUpRows = 8;
struct PackGateUpArgs {
  WeightArg gate;  // [inter, k]; inter a multiple of 8; any type and, but for i4, any strides
  WeightArg up;    // the same; quantised, each row has scales of its own
  WeightArg out;   // [2 * inter, k], dtype of gate; shares memory with neither
};
void pack_gate_up(const PackGateUpArgs& args, const Context& ctx = {});

}  // namespace tessera
