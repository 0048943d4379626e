// What each operation costs at least: bytes that must cross memory, and arithmetic. bench/problems
// state the same for their shapes; a test holds the two to each other.
// SPDX-License-Identifier: MIT
#pragma once

#include "core/op_log.h"
#include "tessera/core/device.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/attention_append.h"
#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/kv_cache.h"
#include "tessera/ops/norm.h"
#include "tessera/ops/norm_gemm.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/reduce.h"
#include "tessera/ops/rope.h"
#include "tessera/ops/sample.h"
#include "tessera/ops/scale.h"
#include "tessera/ops/softmax.h"
#include "tessera/ops/sparse.h"

namespace tessera {

// Of checked arguments. Where the cost depends on lengths in device memory, they are copied to the
// host in the order of `stream`, and waited for. Attention masks count through their window; lists
// of keys or blocks, intervals and trees are not read, and count as if everything were seen.
OpCost cost_of(const RmsNormArgs& args, Stream stream);
OpCost cost_of(const LayerNormArgs& args, Stream stream);
OpCost cost_of(const RopeArgs& args, Stream stream);
OpCost cost_of(const ActivationArgs& args, Stream stream);
OpCost cost_of(const SoftmaxArgs& args, Stream stream);
OpCost cost_of(const EmbeddingArgs& args, Stream stream);
OpCost cost_of(const CopyArgs& args, Stream stream);
OpCost cost_of(const QuantizeArgs& args, Stream stream);
OpCost cost_of(const DequantizeArgs& args, Stream stream);
OpCost cost_of(const ReduceArgs& args, Stream stream);
OpCost cost_of(const ArgmaxArgs& args, Stream stream);
OpCost cost_of(const SampleArgs& args, Stream stream);
OpCost cost_of(const TokenLogprobsArgs& args, Stream stream);
OpCost cost_of(const ScaleArgs& args, Stream stream);
OpCost cost_of(const GemmArgs& args, Stream stream);
OpCost cost_of(const NormGemmArgs& args, Stream stream);
OpCost cost_of(const Gemm24Args& args, Stream stream);
OpCost cost_of(const AttentionArgs& args, Stream stream);
OpCost cost_of(const DecodeAttentionArgs& args, Stream stream);
OpCost cost_of(const AppendAttentionArgs& args, Stream stream);
OpCost cost_of(const MergeAttentionArgs& args, Stream stream);
OpCost cost_of(const CascadeAttentionArgs& args, Stream stream);
OpCost cost_of(const KvAppendArgs& args, Stream stream);
OpCost cost_of(const KvGatherArgs& args, Stream stream);
OpCost cost_of(const KvCopyPagesArgs& args, Stream stream);

// An operation that is not listed above still runs and is logged, without a cost.
template <class Args>
OpCost cost_of(const Args&, Stream) {
  return {.is_known = false};
}

}  // namespace tessera
