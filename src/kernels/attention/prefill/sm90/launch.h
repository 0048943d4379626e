// The launchers that the sm90 table of prefill attention points at; a row without an instance does
// not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/prefill/sm90/plan.h"
#include "tessera/core/context.h"
#include "tessera/ops/attention.h"

namespace tessera::kernels::prefill_sm90 {

// T is Bf16, F16 or E4m3. Heads have kDk and kDv elements; in a padded instance, at most as many.
template <class T, int kDk, int kDv, PrefillKind kKind>
void launch_prefill(const AttentionArgs& args, const Context& ctx);

// choose_group, cached for the last few shapes of the thread.
int group_of(const PrefillOrder& order);

}  // namespace tessera::kernels::prefill_sm90
