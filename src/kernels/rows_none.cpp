// The empty tables of the portable library and of vendors, for a build without CUDA.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"
#include "kernels/elementwise/rows.h"
#include "kernels/gemm/rows.h"
#include "kernels/kv/rows.h"
#include "kernels/sampling/rows.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows() { return {}; }

const ElementwiseRows& elementwise_rows() {
  static constexpr ElementwiseRows kNone{};
  return kNone;
}

std::span<const Row<GemmArgs>> gemm_rows() { return {}; }
std::span<const Row<GemmArgs>> gemm_rows_cublaslt() { return {}; }
std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return {}; }

const KvCacheRows& kv_cache_rows() {
  static constexpr KvCacheRows kNone{};
  return kNone;
}

const SamplingRows& sampling_rows() {
  static constexpr SamplingRows kNone{};
  return kNone;
}

}  // namespace tessera::kernels
