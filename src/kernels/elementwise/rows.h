// The elementwise family's tables, one per operation and library; empty in a build without that
// library (kernels/rows_none*.cpp).
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kernels/row.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/reduce.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/scale.h"
#include "tessera/ops/softmax.h"

namespace tessera::kernels {

struct ElementwiseRows {
  std::span<const Row<RmsNormArgs>> rms_norm;
  std::span<const Row<LayerNormArgs>> layer_norm;
  std::span<const Row<RopeArgs>> rope;
  std::span<const Row<ActivationArgs>> activation;
  std::span<const Row<SoftmaxArgs>> softmax;
  std::span<const Row<EmbeddingArgs>> embedding;
  std::span<const Row<CopyArgs>> copy;
  std::span<const Row<QuantizeArgs>> quantize;
  std::span<const Row<DequantizeArgs>> dequantize;
  std::span<const Row<ReduceArgs>> reduce;
  std::span<const Row<ArgmaxArgs>> argmax;
  std::span<const Row<ScaleArgs>> scale;
};

const ElementwiseRows& elementwise_rows();
const ElementwiseRows& elementwise_rows_sm90();

}  // namespace tessera::kernels

namespace tessera {

inline RowKey key_of(const RmsNormArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const LayerNormArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const RopeArgs& args) { return {args.q.dtype, args.q.dtype}; }
inline RowKey key_of(const ActivationArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const SoftmaxArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const EmbeddingArgs& args) { return {args.table.dtype, args.out.dtype}; }
inline RowKey key_of(const QuantizeArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const DequantizeArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const ScaleArgs& args) { return {args.x.dtype, args.out.dtype}; }
inline RowKey key_of(const ReduceArgs& args) { return {args.x.dtype, args.out.dtype}; }
// The launcher chooses by the type of the index.
inline RowKey key_of(const ArgmaxArgs& args) { return {args.x.dtype, args.x.dtype}; }
// A copy that does not convert moves bits: the key is one type for each width.
inline RowKey key_of(const CopyArgs& args) {
  if (args.x.dtype != args.out.dtype) return {args.x.dtype, args.out.dtype};
  switch (bit_width(args.x.dtype)) {
    case 8: return {DType::u8, DType::u8};
    case 16: return {DType::f16, DType::f16};
    case 32: return {DType::i32, DType::i32};
    default: return {DType::i64, DType::i64};
  }
}

}  // namespace tessera
