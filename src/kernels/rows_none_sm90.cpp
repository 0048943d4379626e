// The empty tables of the sm90 library, for a build without it: no CUDA, or a GPU that is no
// Hopper.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"
#include "kernels/elementwise/rows.h"
#include "kernels/gemm/rows.h"
#include "kernels/kv/rows.h"
#include "kernels/sampling/rows.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() { return {}; }
std::span<const Row<AppendAttentionArgs>> attention_append_rows_sm90() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90() { return {}; }

const ElementwiseRows& elementwise_rows_sm90() {
  static constexpr ElementwiseRows kNone{};
  return kNone;
}

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return {}; }
std::span<const Row<NormGemmArgs>> norm_gemm_rows_sm90() { return {}; }

const KvCacheRows& kv_cache_rows_sm90() {
  static constexpr KvCacheRows kNone{};
  return kNone;
}

const SamplingRows& sampling_rows_sm90() {
  static constexpr SamplingRows kNone{};
  return kNone;
}

}  // namespace tessera::kernels
