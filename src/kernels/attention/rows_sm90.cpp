// Prefill attention's table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/accept.h"
#include "kernels/attention/rows.h"
#include "kernels/attention/sm90/launch_sm90.h"

namespace tessera::kernels {
namespace {

template <int kDk, int kDv>
bool accepts(const AttentionArgs& args) {
  return args.q.size(-1) == kDk && args.v.size(-1) == kDv && accepts_prefill_sm90(args);
}

template <class T, int kDk, int kDv>
constexpr Row<AttentionArgs> row(std::string_view label) {
  return {"attention_prefill",
          Library::sm90,
          {dtype_of<T>, dtype_of<T>},
          &launch_prefill_sm90<T, kDk, kDv>,
          label,
          &accepts<kDk, kDv>};
}

// Whole chunks of 16 bytes; changed scores are left to the portable library.
template <int kAbove, int kUpTo>
bool accepts_padded(const AttentionArgs& args) {
  return has_heads_between<kAbove, kUpTo>(args) && args.q.size(-1) % 8 == 0 &&
         args.v.size(-1) % 8 == 0 && !changes_scores(args) && accepts_prefill_sm90(args);
}

// Behind the others: tiles of kUpTo elements for heads of more than kAbove.
template <class T, int kAbove, int kUpTo>
constexpr Row<AttentionArgs> padded_row(std::string_view label) {
  return {"attention_prefill",
          Library::sm90,
          {dtype_of<T>, dtype_of<T>},
          &launch_prefill_sm90_padded<T, kUpTo>,
          label,
          &accepts_padded<kAbove, kUpTo>};
}

// Sums in float take as many registers again, which large heads and changed scores do not leave.
template <int kD>
bool accepts_e4m3(const AttentionArgs& args) {
  const bool has_registers = kD < 256 && !changes_scores(args);
  return accepts<kD, kD>(args) && (has_registers || !args.sums_in_float);
}

template <int kD>
constexpr Row<AttentionArgs> row_e4m3(DType out, std::string_view label) {
  return {"attention_prefill",           Library::sm90, {DType::e4m3, out},
          &launch_prefill_sm90_e4m3<kD>, label,         &accepts<kD, kD>};
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

    padded_row<Bf16, 0, 64>("bf16_up_to_d64"),
    padded_row<Bf16, 64, 96>("bf16_up_to_d96"),
    padded_row<Bf16, 96, 128>("bf16_up_to_d128"),
    padded_row<Bf16, 128, 192>("bf16_up_to_d192"),

    padded_row<F16, 0, 64>("f16_up_to_d64"),
    padded_row<F16, 64, 96>("f16_up_to_d96"),
    padded_row<F16, 96, 128>("f16_up_to_d128"),
    padded_row<F16, 128, 192>("f16_up_to_d192"),

    row_e4m3<128>(DType::bf16, "e4m3_bf16_d128"),
    row_e4m3<64>(DType::bf16, "e4m3_bf16_d64"),
    row_e4m3<256>(DType::bf16, "e4m3_bf16_d256"),
    row_e4m3<128>(DType::f16, "e4m3_f16_d128"),
    row_e4m3<64>(DType::f16, "e4m3_f16_d64"),
    row_e4m3<256>(DType::f16, "e4m3_f16_d256"),
};

}  // namespace

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return kRows; }

}  // namespace tessera::kernels
