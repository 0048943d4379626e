// The launchers the Hopper table points at.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/sm90/plan.h"
#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// Whether the copy engine can read the operands: 16-byte rows, whole slabs of 64 along k.
bool accepts_sm90(const GemmArgs& args);

// Chooses a plan and runs it; T is the type of a. Every type of out is stored.
// Where cuBLASLt is faster.
bool yields_sm90(const GemmArgs& args);

// Where k split among blocks is faster it is split, unless a row's bits may not depend on m.
template <class T>
void launch_gemm_sm90(const GemmArgs& args, const Context& ctx);

// The plan's shape among the tiles of one or two warpgroups, or among those that split k. Defined
// in launch_sm90.cuh.
template <class T>
void launch_one_warpgroup(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_two_warpgroups(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);
template <class T>
void launch_split(const GemmArgs& args, const Sm90Plan& plan, const Context& ctx);

}  // namespace tessera::kernels
