// Merging's tables of both libraries.
// SPDX-License-Identifier: MIT
#include "kernels/attention/merge/table.h"

namespace tessera::kernels {

std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90() {
  return MergeTable<Sm90>::rows;
}
std::span<const Row<MergeAttentionArgs>> attention_merge_rows() {
  return MergeTable<Portable>::rows;
}

}  // namespace tessera::kernels
