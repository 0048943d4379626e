// The merge operation's tables of both libraries.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include "kernels/attention/merge/params.h"

namespace tessera::kernels {
namespace merge {
namespace {

// Counts that fit into 32 bits.
bool has_countable_rows(const MergeAttentionArgs& args) {
  return args.out.num_elements() == 0 ||
         (num_rows(args) <= kMaxDividend && args.parts.size(0) <= kUnbounded);
}

template <class Arch, class T>
constexpr Row<MergeAttentionArgs> row{
    "attention_merge",  Arch::library, {dtype_of<T>, dtype_of<T>}, &launch_merge<Arch, T>, {},
    &has_countable_rows};
template <class Arch>
constexpr Row<MergeAttentionArgs> rows[] = {row<Arch, Bf16>, row<Arch, F16>, row<Arch, float>};

}  // namespace
}  // namespace merge

#ifdef TESSERA_SM90  // otherwise rows_none_sm90.cpp has an empty one
std::span<const Row<MergeAttentionArgs>> attention_merge_rows_sm90() { return merge::rows<Sm90>; }
#endif
std::span<const Row<MergeAttentionArgs>> attention_merge_rows() { return merge::rows<Portable>; }

}  // namespace tessera::kernels
