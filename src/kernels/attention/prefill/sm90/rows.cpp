// Prefill attention's table of the sm90 library, and what its rows accept.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include <array>

#include "kernels/attention/params.h"
#include "kernels/attention/prefill/sm90/launch.h"

namespace tessera::kernels {
namespace prefill_sm90 {
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 20;   // blocks of keys are counted in 16 bits
constexpr int64_t kMostTiles = int64_t{1} << 30;  // tiles of 64 rows

// TMA needs positive strides; several sequences may share what is only read, with a batch stride of
// 0.
bool walks_forward(const TensorView& t, bool is_written = false) {
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    const int64_t least = is_written || axis > 0 ? 1 : 0;
    if (t.size(axis) > 1 && t.stride(axis) < least) return false;
  }
  return true;
}

bool accepts_layout(const AttentionArgs& args) {
  const int64_t rows = args.q.size(-3) + 64 * batch_of(args);
  const int64_t sequences = is_ragged(args) ? 1 : batch_of(args);
  return has_aligned_heads(args) && has_pages_of(args, 16) && num_keys(args) <= kMostKeys &&
         rows / 64 * sequences * args.q.size(-2) <= kMostTiles && walks_forward(args.q) &&
         walks_forward(args.k) && walks_forward(args.v) && walks_forward(args.out, true);
}

template <int kDk, int kDv>
bool accepts(const AttentionArgs& args) {
  return args.q.size(-1) == kDk && args.v.size(-1) == kDv && accepts_layout(args);
}

// Whole chunks of 16 bytes. Calls that change scores are left to the portable library.
template <int kAbove, int kUpTo>
bool accepts_padded(const AttentionArgs& args) {
  return has_heads_between<kAbove, kUpTo>(args) && args.q.size(-1) % 8 == 0 &&
         args.v.size(-1) % 8 == 0 && !changes_scores(args) && accepts_layout(args);
}

template <class T, int kDk, int kDv>
void launch_16_bit(const AttentionArgs& args, const Context& ctx) {
  if (changes_scores(args)) return launch_prefill<T, kDk, kDv, PrefillKind::general>(args, ctx);
  launch_prefill<T, kDk, kDv, PrefillKind::plain>(args, ctx);
}

// Sums in float need as many registers again, which large heads and general instances do not have:
// these sum on the tensor cores whatever the caller asks for.
template <int kD>
void launch_e4m3(const AttentionArgs& args, const Context& ctx) {
  if (changes_scores(args)) return launch_prefill<E4m3, kD, kD, PrefillKind::general>(args, ctx);
  if constexpr (kD < 256) {
    if (args.sums_in_float) {
      return launch_prefill<E4m3, kD, kD, PrefillKind::sums_in_float>(args, ctx);
    }
  }
  launch_prefill<E4m3, kD, kD, PrefillKind::plain>(args, ctx);
}

// "bf16_d128", "bf16_d192_128".
template <class T, int kDk, int kDv>
constexpr Label kLabel = kDk == kDv ? label_of(dtype_of<T>, "_d", kDk)
                                    : label_of(dtype_of<T>, "_d", kDk, "_", kDv);
// "bf16_up_to_d64".
template <class T, int kUpTo>
constexpr Label kPaddedLabel = label_of(dtype_of<T>, "_up_to_d", kUpTo);
// "e4m3_bf16_d128".
template <class Out, int kD>
constexpr Label kLabelE4m3 = label_of("e4m3_", dtype_of<Out>, "_d", kD);

template <class T, int kDk, int kDv>
constexpr Row<AttentionArgs> row() {
  return {"attention_prefill",         Library::sm90,       {dtype_of<T>, dtype_of<T>},
          &launch_16_bit<T, kDk, kDv>, kLabel<T, kDk, kDv>, &accepts<kDk, kDv>};
}

// After the others: tiles of kUpTo elements for heads of more than kAbove.
template <class T, int kAbove, int kUpTo>
constexpr Row<AttentionArgs> padded_row() {
  return {"attention_prefill",        Library::sm90,
          {dtype_of<T>, dtype_of<T>}, &launch_prefill<T, kUpTo, kUpTo, PrefillKind::padded>,
          kPaddedLabel<T, kUpTo>,     &accepts_padded<kAbove, kUpTo>};
}

template <class Out, int kD>
constexpr Row<AttentionArgs> row_e4m3() {
  return {"attention_prefill", Library::sm90,       {DType::e4m3, dtype_of<Out>},
          &launch_e4m3<kD>,    kLabelE4m3<Out, kD>, &accepts<kD, kD>};
}

template <class T>
constexpr std::array kExact{row<T, 128, 128>(), row<T, 64, 64>(),   row<T, 96, 96>(),
                            row<T, 256, 256>(), row<T, 192, 128>(), row<T, 32, 64>()};
template <class T>
constexpr std::array kPadded{padded_row<T, 0, 64>(), padded_row<T, 64, 96>(),
                             padded_row<T, 96, 128>(), padded_row<T, 128, 192>()};
template <class Out>
constexpr std::array kE4m3{row_e4m3<Out, 128>(), row_e4m3<Out, 64>(), row_e4m3<Out, 256>()};

constexpr auto kRows =
    joined(kExact<Bf16>, kExact<F16>, kPadded<Bf16>, kPadded<F16>, kE4m3<Bf16>, kE4m3<F16>);

}  // namespace

int group_of(const PrefillOrder& order) {
  struct Entry {
    PrefillOrder order;
    int group;
  };
  thread_local std::array<Entry, 16> entries{};
  thread_local size_t oldest = 0;
  for (const Entry& entry : entries) {
    if (entry.group > 0 && entry.order == order) return entry.group;
  }
  const int group = choose_group(order);
  entries[oldest] = {order, group};
  oldest = (oldest + 1) % entries.size();
  return group;
}

}  // namespace prefill_sm90

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return prefill_sm90::kRows; }

}  // namespace tessera::kernels
