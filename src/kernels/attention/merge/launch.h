// The launcher that the tables of merging point at; instances/merge*.cu make it for each library.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/attention.h"

namespace tessera::kernels {

template <class Arch, class T>
void launch_attention_merge(const MergeAttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels
