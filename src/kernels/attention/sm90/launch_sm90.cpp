// What the Hopper prefill rows take, and the order they walk their tiles in.
// SPDX-License-Identifier: MIT
#include "kernels/attention/sm90/launch_sm90.h"

#include <array>

#include "kernels/attention/accept.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kMostKeys = int64_t{1} << 20;   // blocks of them are counted in 16 bits
constexpr int64_t kMostTiles = int64_t{1} << 30;  // of 64 rows

// The copy engine walks forward only; what is only read may be the same for several sequences.
bool walks_forward(const TensorView& t, bool is_written = false) {
  for (int axis = 0; axis < t.rank - 1; ++axis) {
    const int64_t least = is_written || axis > 0 ? 1 : 0;
    if (t.size(axis) > 1 && t.stride(axis) < least) return false;
  }
  return true;
}

}  // namespace

bool accepts_prefill_sm90(const AttentionArgs& args) {
  const int64_t rows = args.q.size(-3) + 64 * batch_of(args);
  const int64_t sequences = is_ragged(args) ? 1 : batch_of(args);
  return has_aligned_heads(args) && has_pages_of(args, 16) && num_keys(args) <= kMostKeys &&
         rows / 64 * sequences * args.q.size(-2) <= kMostTiles && walks_forward(args.q) &&
         walks_forward(args.k) && walks_forward(args.v) && walks_forward(args.out, true);
}

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

}  // namespace tessera::kernels
