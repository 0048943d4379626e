// The launchers that the portable table of decode attention points at.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels {

// T is the type of q: float, F16 or Bf16.
template <class T>
void launch_attention_decode(const DecodeAttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels
