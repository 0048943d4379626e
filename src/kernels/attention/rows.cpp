// Prefill attention's table of the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include "kernels/attention/accept.h"
#include "kernels/attention/portable/launch.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostBlocks = 65535;  // along the second and third axis of a grid

// Lengths in 30 bits, so that the reach of a mask and a tile beyond them fit into 32.
bool has_fitting_sizes(const AttentionArgs& args) {
  return args.q.size(-3) <= kUnbounded && num_keys(args) <= kUnbounded &&
         args.q.size(-2) <= kMostBlocks && (is_ragged(args) || args.q.size(0) <= kMostBlocks);
}

template <int kDk, int kDv>
bool accepts(const AttentionArgs& args) {
  return args.q.size(-1) == kDk && args.v.size(-1) == kDv && has_fitting_sizes(args) &&
         has_pages_of(args, 1) && has_aligned_heads(args);
}

template <class T, int kDk, int kDv>
constexpr Row<AttentionArgs> row(std::string_view label) {
  constexpr DType kDType = dtype_of<T>;
  if constexpr (kDType == DType::f32) {
    return {"attention_prefill",
            Library::portable,
            {kDType, kDType},
            &launch_attention_f32<kDk, kDv>,
            label,
            &accepts<kDk, kDv>};
  } else {
    return {"attention_prefill",
            Library::portable,
            {kDType, kDType},
            &launch_attention_mma<T, kDk, kDv>,
            label,
            &accepts<kDk, kDv>};
  }
}

constexpr Row<AttentionArgs> kRows[] = {
    row<Bf16, 128, 128>("bf16_d128"),     row<Bf16, 64, 64>("bf16_d64"),
    row<Bf16, 96, 96>("bf16_d96"),        row<Bf16, 256, 256>("bf16_d256"),
    row<Bf16, 192, 128>("bf16_d192_128"), row<Bf16, 32, 64>("bf16_d32_64"),

    row<F16, 128, 128>("f16_d128"),       row<F16, 64, 64>("f16_d64"),
    row<F16, 96, 96>("f16_d96"),          row<F16, 256, 256>("f16_d256"),
    row<F16, 192, 128>("f16_d192_128"),   row<F16, 32, 64>("f16_d32_64"),

    row<float, 128, 128>("f32_d128"),     row<float, 64, 64>("f32_d64"),
    row<float, 96, 96>("f32_d96"),        row<float, 256, 256>("f32_d256"),
    row<float, 192, 128>("f32_d192_128"), row<float, 32, 64>("f32_d32_64"),
};

}  // namespace

std::span<const Row<AttentionArgs>> attention_prefill_rows() { return kRows; }

}  // namespace tessera::kernels
