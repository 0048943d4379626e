// The rules for a weight, and the row that packs one.
// SPDX-License-Identifier: MIT
#pragma once

#include "ops/check.h"
#include "ops/dispatch.h"
#include "tessera/ops/gemm.h"

namespace tessera::ops {

inline constexpr std::string_view kTableOfWeight = "weight: table";  // in messages

// Scales and zero points that fit the weight's values; `values` has been checked and carries the
// weight's name, such as "gemm: b".
void expect_weight(const Weight& weight, const Named& values, std::string_view scale_name,
                   std::string_view zero_point_name);

// The packing of a row that takes these arguments with b packed; Packing::rows where none does.
Packing preferred_packing(const Op<GemmArgs>& op, const GemmArgs& args, const Target& target,
                          const Context& ctx);
// The function that makes this packing of such a weight, of a row that runs on the target; null
// where there is none.
PackWeight find_pack(const Op<GemmArgs>& op, const Weight& packed, const Target& target);

}  // namespace tessera::ops
