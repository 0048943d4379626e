// The empty tables of a build without CUDA.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"
#include "kernels/elementwise/rows.h"
#include "kernels/gemm/rows.h"
#include "kernels/kv/rows.h"
#include "kernels/sampling/rows.h"

namespace tessera::kernels {
namespace {

constexpr ElementwiseRows kNoElementwiseRows{};
constexpr KvCacheRows kNoKvCacheRows{};
constexpr SamplingRows kNoSamplingRows{};

}  // namespace

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return {}; }
std::span<const Row<AttentionArgs>> attention_prefill_rows() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() { return {}; }
std::span<const Row<DecodeAttentionArgs>> attention_decode_rows() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90() { return {}; }
std::span<const Row<MergeAttentionArgs>> attention_merge_rows() { return {}; }

const ElementwiseRows& elementwise_rows_sm90() { return kNoElementwiseRows; }
const ElementwiseRows& elementwise_rows() { return kNoElementwiseRows; }

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return {}; }
std::span<const Row<GemmArgs>> gemm_rows() { return {}; }
std::span<const Row<GemmArgs>> gemm_rows_cublaslt() { return {}; }
std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return {}; }

const KvCacheRows& kv_cache_rows_sm90() { return kNoKvCacheRows; }
const KvCacheRows& kv_cache_rows() { return kNoKvCacheRows; }

const SamplingRows& sampling_rows_sm90() { return kNoSamplingRows; }
const SamplingRows& sampling_rows() { return kNoSamplingRows; }

}  // namespace tessera::kernels
