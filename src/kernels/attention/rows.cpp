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

// Rows that begin on words suffice, out excepted, which is then stored element by element.
template <int kAbove, int kUpTo>
bool accepts_padded(const AttentionArgs& args) {
  return has_heads_between<kAbove, kUpTo>(args) && has_fitting_sizes(args) &&
         has_pages_of(args, 1) && has_aligned_heads(args.q, 4) && has_aligned_heads(args.k, 4) &&
         has_aligned_heads(args.v, 4);
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

// Behind the others: tiles of kUpTo columns for heads of more than kAbove.
template <class T, int kAbove, int kUpTo>
constexpr Row<AttentionArgs> padded_row(std::string_view label) {
  constexpr DType kDType = dtype_of<T>;
  Row<AttentionArgs> row{
      "attention_prefill",           Library::portable, {kDType, kDType}, nullptr, label,
      &accepts_padded<kAbove, kUpTo>};
  if constexpr (kDType == DType::f32) {
    row.launch = &launch_attention_f32_padded<kUpTo>;
  } else {
    row.launch = &launch_attention_mma_padded<T, kUpTo>;
  }
  return row;
}

constexpr Row<AttentionArgs> kRows[] = {
    row<Bf16, 128, 128>("bf16_d128"),
    row<Bf16, 64, 64>("bf16_d64"),
    row<Bf16, 96, 96>("bf16_d96"),
    row<Bf16, 256, 256>("bf16_d256"),
    row<Bf16, 192, 128>("bf16_d192_128"),
    row<Bf16, 32, 64>("bf16_d32_64"),

    row<F16, 128, 128>("f16_d128"),
    row<F16, 64, 64>("f16_d64"),
    row<F16, 96, 96>("f16_d96"),
    row<F16, 256, 256>("f16_d256"),
    row<F16, 192, 128>("f16_d192_128"),
    row<F16, 32, 64>("f16_d32_64"),

    row<float, 128, 128>("f32_d128"),
    row<float, 64, 64>("f32_d64"),
    row<float, 96, 96>("f32_d96"),
    row<float, 256, 256>("f32_d256"),
    row<float, 192, 128>("f32_d192_128"),
    row<float, 32, 64>("f32_d32_64"),

    padded_row<Bf16, 0, 64>("bf16_up_to_d64"),
    padded_row<Bf16, 64, 96>("bf16_up_to_d96"),
    padded_row<Bf16, 96, 128>("bf16_up_to_d128"),
    padded_row<Bf16, 128, 256>("bf16_up_to_d256"),
    padded_row<F16, 0, 64>("f16_up_to_d64"),
    padded_row<F16, 64, 96>("f16_up_to_d96"),
    padded_row<F16, 96, 128>("f16_up_to_d128"),
    padded_row<F16, 128, 256>("f16_up_to_d256"),
    padded_row<float, 0, 64>("f32_up_to_d64"),
    padded_row<float, 64, 128>("f32_up_to_d128"),
    padded_row<float, 128, 256>("f32_up_to_d256"),
};

}  // namespace

std::span<const Row<AttentionArgs>> attention_prefill_rows() { return kRows; }

}  // namespace tessera::kernels
