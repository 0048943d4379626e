// The launchers of products with 4-bit weights in Packing::fragments, and of their packing; defined
// in w4_sm90.cuh, few_sm90.cuh and pack.cuh.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/gemm/w4/few_plan.h"
#include "kernels/gemm/w4/plan.h"
#include "tessera/core/context.h"
#include "tessera/ops/gemm.h"
#include "tessera/ops/norm.h"

namespace tessera::kernels {

// T is the type of a, kGroup that of W4Tile; every type of out is stored. `norm`: made inside;
// null: none.
template <class T, int kGroup>
void launch_w4(const GemmArgs& args, const W4Plan& plan, const Context& ctx);
template <class T, int kGroup>
void launch_w4_few(const GemmArgs& args, const RmsNormArgs* norm, const W4FewPlan& plan,
                   const Context& ctx);

// From Packing::rows to Packing::fragments, or back.
template <class Arch>
void launch_pack_fragments(const Weight& from, const Weight& to, const Context& ctx);

}  // namespace tessera::kernels
