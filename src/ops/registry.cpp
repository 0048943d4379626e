// The list of every row, gathered from the families' tables.
// SPDX-License-Identifier: MIT
#include "ops/registry.h"

#include "kernels/elementwise/rows.h"

namespace tessera::ops {
namespace {

template <class Args>
void append(std::vector<RowInfo>& all, std::span<const Row<Args>> rows) {
  for (const Row<Args>& row : rows) {
    all.push_back(
        {"elementwise", row.op, row.name(), row.library, row.key, row.is_batch_invariant});
  }
}

// The rows of one operation, the preferred library first.
template <class Member>
void append_op(std::vector<RowInfo>& all, Member member) {
  append(all, kernels::elementwise_rows_sm90().*member);
  append(all, kernels::elementwise_rows().*member);
}

}  // namespace

std::vector<RowInfo> all_rows() {
  using kernels::ElementwiseRows;
  std::vector<RowInfo> all;
  append_op(all, &ElementwiseRows::rms_norm);
  append_op(all, &ElementwiseRows::layer_norm);
  append_op(all, &ElementwiseRows::rope);
  append_op(all, &ElementwiseRows::activation);
  append_op(all, &ElementwiseRows::softmax);
  append_op(all, &ElementwiseRows::embedding);
  append_op(all, &ElementwiseRows::copy);
  append_op(all, &ElementwiseRows::quantize);
  append_op(all, &ElementwiseRows::dequantize);
  append_op(all, &ElementwiseRows::reduce);
  append_op(all, &ElementwiseRows::argmax);
  return all;
}

}  // namespace tessera::ops
