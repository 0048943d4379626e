// The list of every row, gathered from the families' tables.
// SPDX-License-Identifier: MIT
#include "ops/registry.h"

#include "kernels/attention/rows.h"
#include "kernels/elementwise/rows.h"
#include "kernels/gemm/rows.h"
#include "kernels/kv/rows.h"
#include "kernels/sampling/rows.h"
#include "ops/attention_rows.h"

namespace tessera::ops {
namespace {

template <class Args>
void append(std::vector<RowInfo>& all, std::string_view family, std::span<const Row<Args>> rows) {
  for (const Row<Args>& row : rows) {
    all.push_back({family, row.op, row.name(), row.library, row.key, row.is_batch_invariant});
  }
}

// The rows of one elementwise operation, the preferred library first.
template <class Member>
void append_elementwise(std::vector<RowInfo>& all, Member member) {
  append(all, "elementwise", kernels::elementwise_rows_sm90().*member);
  append(all, "elementwise", kernels::elementwise_rows().*member);
}

template <class Member>
void append_kv(std::vector<RowInfo>& all, Member member) {
  append(all, "kv", kernels::kv_cache_rows_sm90().*member);
  append(all, "kv", kernels::kv_cache_rows().*member);
}

}  // namespace

std::vector<RowInfo> all_rows() {
  using kernels::ElementwiseRows;
  std::vector<RowInfo> all;
  append_elementwise(all, &ElementwiseRows::rms_norm);
  append_elementwise(all, &ElementwiseRows::layer_norm);
  append_elementwise(all, &ElementwiseRows::rope);
  append_elementwise(all, &ElementwiseRows::activation);
  append_elementwise(all, &ElementwiseRows::softmax);
  append_elementwise(all, &ElementwiseRows::embedding);
  append_elementwise(all, &ElementwiseRows::copy);
  append_elementwise(all, &ElementwiseRows::quantize);
  append_elementwise(all, &ElementwiseRows::dequantize);
  append_elementwise(all, &ElementwiseRows::reduce);
  append_elementwise(all, &ElementwiseRows::argmax);
  append_elementwise(all, &ElementwiseRows::scale);
  append(all, "gemm", kernels::gemm_rows_sm90());
  append(all, "gemm", kernels::gemm_rows_cublaslt());
  append(all, "gemm", kernels::gemm_rows());
  append(all, "gemm", kernels::norm_gemm_rows_sm90());
  append(all, "gemm", kernels::gemm_2_4_rows());
  append(all, "attention", kernels::attention_prefill_rows_sm90());
  append(all, "attention", kernels::attention_prefill_rows());
  append(all, "attention", kernels::attention_decode_rows_sm90());
  append(all, "attention", kernels::attention_decode_rows());
  append(all, "attention", kernels::attention_append_rows_sm90());
  append(all, "attention", attention_append_rows());
  append(all, "attention", kernels::attention_merge_rows_sm90());
  append(all, "attention", kernels::attention_merge_rows());
  append(all, "attention", attention_cascade_rows());
  append_kv(all, &kernels::KvCacheRows::append);
  append_kv(all, &kernels::KvCacheRows::gather);
  append_kv(all, &kernels::KvCacheRows::copy_pages);
  append(all, "sampling", kernels::sampling_rows_sm90().sample);
  append(all, "sampling", kernels::sampling_rows().sample);
  append(all, "sampling", kernels::sampling_rows_sm90().token_logprobs);
  append(all, "sampling", kernels::sampling_rows().token_logprobs);
  return all;
}

}  // namespace tessera::ops
