// The launchers of the Hopper kernel, one for each list of tiles; defined in gemm_sm90.cuh.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/plan.h"
#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// T is the type of a; every type of out is stored. The plan's shape is one of the list.
template <class T>
void launch_one_warpgroup(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_two_warpgroups(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_split(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);

}  // namespace tessera::kernels
