// Merging's rows, written once for both libraries.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/merge/launch.h"
#include "kernels/attention/merge/params.h"
#include "kernels/attention/rows.h"

namespace tessera::kernels {

// Counts that fit into 32 bits.
inline bool has_countable_rows(const MergeAttentionArgs& args) {
  return args.out.num_elements() == 0 ||
         (num_rows(args) <= kMaxDividend && args.parts.size(0) <= kUnbounded);
}

template <class Arch>
struct MergeTable {
  template <class T>
  static constexpr Row<MergeAttentionArgs> row{"attention_merge",
                                               Arch::library,
                                               {dtype_of<T>, dtype_of<T>},
                                               &launch_attention_merge<Arch, T>,
                                               {},
                                               &has_countable_rows};
  static constexpr Row<MergeAttentionArgs> rows[] = {row<Bf16>, row<F16>, row<float>};
};

}  // namespace tessera::kernels
