// The launchers that the portable table points at; a row without an instance does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels {

// By tensor cores; T is Bf16 or F16.
template <class T, int kDk, int kDv>
void launch_attention_mma(const AttentionArgs& args, const Context& ctx);

// By CUDA cores, in float.
template <int kDk, int kDv>
void launch_attention_f32(const AttentionArgs& args, const Context& ctx);

// The same with tiles of kD columns, for heads of at most as many.
template <class T, int kD>
void launch_attention_mma_padded(const AttentionArgs& args, const Context& ctx);
template <int kD>
void launch_attention_f32_padded(const AttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels
