// The launchers that the portable table of prefill attention points at; a row without an instance
// does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels::prefill_portable {

// On tensor cores; T is Bf16 or F16. General: with softcap, ALiBi or dropout.
template <class T, int kDk, int kDv, bool kIsGeneral>
void launch_mma(const AttentionArgs& args, const Context& ctx);

// On CUDA cores, in float.
template <int kDk, int kDv, bool kIsGeneral>
void launch_f32(const AttentionArgs& args, const Context& ctx);

// The same with tiles of kD columns, for heads of at most as many; always general.
template <class T, int kD>
void launch_mma_padded(const AttentionArgs& args, const Context& ctx);
template <int kD>
void launch_f32_padded(const AttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels::prefill_portable
