// Prefill attention's table of the portable library, and what its rows accept.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include <array>

#include "kernels/attention/params.h"
#include "kernels/attention/prefill/portable/launch.h"
#include "kernels/with_constant.h"

namespace tessera::kernels {
namespace prefill_portable {
namespace {

constexpr int64_t kMostBlocks = 65535;  // along the second and third axis of a grid

// Lengths fit into 30 bits, so that the reach of a mask and a tile beyond them fit into 32.
bool has_fitting_sizes(const AttentionArgs& args) {
  return args.q.size(-3) <= kUnbounded && num_keys(args) <= kUnbounded &&
         args.q.size(-2) <= kMostBlocks && (is_ragged(args) || args.q.size(0) <= kMostBlocks);
}

template <int kDk, int kDv>
bool accepts(const AttentionArgs& args) {
  return args.q.size(-1) == kDk && args.v.size(-1) == kDv && has_fitting_sizes(args) &&
         has_pages_of(args, 1) && has_aligned_heads(args);
}

// Rows need only begin on 4 bytes; out may lie anywhere and is then stored element by element.
template <int kAbove, int kUpTo>
bool accepts_padded(const AttentionArgs& args) {
  return has_heads_between<kAbove, kUpTo>(args) && has_fitting_sizes(args) &&
         has_pages_of(args, 1) && has_aligned_heads(args.q, 4) && has_aligned_heads(args.k, 4) &&
         has_aligned_heads(args.v, 4);
}

template <class T, int kDk, int kDv>
void launch_exact(const AttentionArgs& args, const Context& ctx) {
  with_constant<true, false>(changes_scores(args), [&](auto is_general) {
    if constexpr (dtype_of<T> == DType::f32) {
      launch_f32<kDk, kDv, is_general()>(args, ctx);
    } else {
      launch_mma<T, kDk, kDv, is_general()>(args, ctx);
    }
  });
}

// "bf16_d128", "bf16_d192_128".
template <class T, int kDk, int kDv>
constexpr Label kLabel = kDk == kDv ? label_of(dtype_of<T>, "_d", kDk)
                                    : label_of(dtype_of<T>, "_d", kDk, "_", kDv);
// "bf16_up_to_d64".
template <class T, int kUpTo>
constexpr Label kPaddedLabel = label_of(dtype_of<T>, "_up_to_d", kUpTo);

template <class T, int kDk, int kDv>
constexpr Row<AttentionArgs> row() {
  return {"attention_prefill",        Library::portable,   {dtype_of<T>, dtype_of<T>},
          &launch_exact<T, kDk, kDv>, kLabel<T, kDk, kDv>, &accepts<kDk, kDv>};
}

// After the others: tiles of kUpTo columns for heads of more than kAbove.
template <class T, int kAbove, int kUpTo>
constexpr Row<AttentionArgs> padded_row() {
  Row<AttentionArgs> row{"attention_prefill",        Library::portable,
                         {dtype_of<T>, dtype_of<T>}, nullptr,
                         kPaddedLabel<T, kUpTo>,     &accepts_padded<kAbove, kUpTo>};
  if constexpr (dtype_of<T> == DType::f32) {
    row.launch = &launch_f32_padded<kUpTo>;
  } else {
    row.launch = &launch_mma_padded<T, kUpTo>;
  }
  return row;
}

template <class T>
constexpr std::array kExact{row<T, 128, 128>(), row<T, 64, 64>(),   row<T, 96, 96>(),
                            row<T, 256, 256>(), row<T, 192, 128>(), row<T, 32, 64>()};
template <class T>
constexpr std::array kPadded{padded_row<T, 0, 64>(), padded_row<T, 64, 96>(),
                             padded_row<T, 96, 128>(), padded_row<T, 128, 256>()};
constexpr std::array kPaddedF32{padded_row<float, 0, 64>(), padded_row<float, 64, 128>(),
                                padded_row<float, 128, 256>()};

constexpr auto kRows =
    joined(kExact<Bf16>, kExact<F16>, kExact<float>, kPadded<Bf16>, kPadded<F16>, kPaddedF32);

}  // namespace
}  // namespace prefill_portable

std::span<const Row<AttentionArgs>> attention_prefill_rows() { return prefill_portable::kRows; }

}  // namespace tessera::kernels
