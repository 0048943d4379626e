// The launchers that the sm90 table points at; a row without an instance does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/sm90/plan.h"
#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels {

bool accepts_prefill_sm90(const AttentionArgs& args);

// choose_group, remembered for the last few shapes of the thread.
int group_of(const PrefillOrder& order);

template <class T, int kDk, int kDv>
void launch_prefill_sm90(const AttentionArgs& args, const Context& ctx);
// With softcap, ALiBi or dropout.
template <class T, int kDk, int kDv>
void launch_prefill_sm90_general(const AttentionArgs& args, const Context& ctx);
// Heads of at most kD elements in tiles of kD.
template <class T, int kD>
void launch_prefill_sm90_padded(const AttentionArgs& args, const Context& ctx);

// e4m3 to bf16 or f16.
template <int kD>
void launch_prefill_sm90_e4m3(const AttentionArgs& args, const Context& ctx);

}  // namespace tessera::kernels
