// Selection in a row of logits without sorting it: the candidates among which the best few are, and
// the key at which weights reach a target.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/sampling/row_team.cuh"

namespace tessera::kernels {

inline constexpr float kNever = -__builtin_huge_valf();
inline constexpr int kMostBest = 256;                 // that are looked for among candidates
inline constexpr uint64_t kBrokenKey = ~uint64_t{0};  // above the key of every number

// What the first pass over a row finds. Each thread keeps the largest logits of four parts of its
// tokens: all of them together tell how large the best few at least are.
struct RowTop {
  static constexpr int kParts = 4;
  uint64_t best;        // key of the largest logit; kBrokenKey: a logit is NaN or +infinity
  float parts[kParts];  // -infinity: none

  __device__ float largest() const { return sampling::logit_of(best); }
  __device__ bool is_sound() const { return best != kBrokenKey && largest() > kNever; }
  template <class Team>
  __device__ static int part_size(const Team& team) {
    return ((team.end - team.begin + kParts - 1) / kParts + 3) / 4 * 4;
  }
};

template <class Team>
__device__ RowTop find_top(Team& team, const float* row, bool is_broken) {
  RowTop top;
  uint64_t best = 0;
  TESSERA_UNROLL
  for (int i = 0; i < RowTop::kParts; ++i) {
    float value = kNever;
    int where = -1;
    const int first = team.begin + i * RowTop::part_size(team);
    const int last = min(first + RowTop::part_size(team), team.end);
    team.skim(row, first, last, [&](float x, int token) {
      is_broken = is_broken || !(x < __builtin_huge_valf());
      if (x > value || where < 0) {
        value = x;
        where = token;
      }
    });
    top.parts[i] = value;
    if (where >= 0) best = max(best, sampling::key_of(value, where));
  }
  top.best = team.largest(is_broken ? kBrokenKey : best);
  return top;
}

// Distances from the largest logit in bins that grow with the distance: 16 for each doubling from
// 2^-16 on, by the first bits of the float.
template <int kBins>
struct DistanceBins {
  static constexpr int kShift = 23 - 4;
  static constexpr int kFirst = (127 - 16) << 4;

  __device__ static int bin_of(float distance) {
    return min(max(__float_as_int(distance) >> kShift, kFirst) - kFirst, kBins - 1);
  }
  // The first distance beyond a bin; NaN for the last, which has no end.
  __device__ static float end_of(int bin) {
    return __int_as_float(bin < kBins - 1 ? (kFirst + bin + 1) << kShift : 0x7fffffff);
  }
};

// Puts at least the `count` largest logits above -infinity into the first block's list, all of them
// if there are fewer. Returns how many it has put there; more than the list's size if they do not
// fit. Only threads that hold one of the best read their logits again. Once per kernel.
template <class Team>
__device__ int list_best(Team& team, const float* row, const RowTop& top, int count) {
  constexpr int kBins = Team::kThreads;
  using Distances = DistanceBins<kBins>;
  auto& shared = team.shared;
  const float largest = top.largest();
  TESSERA_UNROLL
  for (const float x : top.parts) {
    if (x > kNever) atomicAdd(&shared.distances[Distances::bin_of(largest - x)], 1u);
  }
  if (team.thread() == 0) shared.found = kBins - 1;
  team.meet_all();
  uint32_t mine = 0;
#pragma unroll 2
  for (int part = 0; part < team.num_parts; ++part) {
    mine += load_part(typename Team::Tag{}, &shared.distances[team.thread()], part);
  }
  const uint64_t before = team.sum_before(mine);
  const auto wanted = static_cast<uint64_t>(count);
  if (before < wanted && before + mine >= wanted) shared.found = team.thread();
  __syncthreads();
  const float end = Distances::end_of(shared.found);
  const auto is_near = [&](float x) { return x > kNever && !(largest - x >= end); };
  uint32_t parts = 0;
  TESSERA_UNROLL
  for (int i = 0; i < RowTop::kParts; ++i) parts |= is_near(top.parts[i]) ? 1u << i : 0u;
#pragma unroll 1
  for (; parts != 0; parts &= parts - 1) {
    const int first = team.begin + (__ffs(static_cast<int>(parts)) - 1) * RowTop::part_size(team);
    const int last = min(first + RowTop::part_size(team), team.end);
    team.template search<8>(row, first, last, is_near, [&](float x, int token) {
      team.append(sampling::key_of(x, token), 0);
    });
  }
  team.meet_all();
  return team.list_count();
}

// The bins of one pass of find_cut. By distance they have equal widths; the last has no end. By key
// they are runs of 2^shift keys.
template <int kBins>
struct Bins {
  bool by_distance;
  float base, scale;
  int shift;

  // From 0 to just below kBins; never falls as the distance grows. NaN does not occur.
  __device__ float place(float distance) const {
    return fminf(fmaxf((distance - base) * scale, 0.0f), static_cast<float>(kBins) - 0.5f);
  }
  __device__ int bin_of(float distance) const {
    int negated;
    whole_part(place(distance), negated);
    return -negated;
  }
  // The smallest distance in bin `bin` or after it, by its bits: those of floats from 0 up are in
  // the same order. Infinity if there is none below it.
  __device__ float start_of(int bin) const {
    int start = 0;
#pragma unroll 1
    for (int bit = 1 << 30; bit > 0; bit /= 2) {
      const int before = min(start + bit, 0x7f800000) - 1;
      if (place(__int_as_float(before)) < static_cast<float>(bin)) start = before + 1;
    }
    return __int_as_float(start);
  }
};

// The elements among which the answer of find_cut is.
struct Bracket {
  float first = 0.0f, last = __builtin_huge_valf();  // distances
  uint64_t lo = 1, hi = ~uint64_t{0};                // keys

  __device__ bool has(float distance) const { return distance >= first && distance <= last; }
  __device__ bool has(uint64_t key) const { return key >= lo && key <= hi; }

  template <int kBins>
  __device__ void narrow(const Bins<kBins>& bins, int bin) {
    if (bins.by_distance) {
      first = fmaxf(first, bins.start_of(bin));
      if (bin == kBins - 1) return;
      last = fminf(last, __int_as_float(__float_as_int(bins.start_of(bin + 1)) - 1));
    } else {
      hi -= static_cast<uint64_t>(bin) << bins.shift;
      const uint64_t size = (uint64_t{1} << bins.shift) - 1;
      if (hi - lo > size) lo = hi - size;
    }
  }
};

// Sums of the columns over the threads of all blocks: word 2 * bin is a bin's weight, the next word
// its count.
template <class Team>
__device__ auto sum_bins(Team& team) {
  constexpr int kBins = Team::kTile.num_bins;
  constexpr uint64_t kCount = Team::kCount;
  auto& bins = team.shared.bins;
  __syncthreads();
#pragma unroll 1
  for (int bin = team.warp(); bin < kBins; bin += Team::kWarps) {
    uint64_t weight = 0, count = 0;
#pragma unroll 4
    for (int i = team.lane(); i < Team::kThreads; i += tile::kWarpSize) {
      weight += bins[bin][i] % kCount;
      count += bins[bin][i] / kCount;
    }
    weight = warp_sum(weight);
    count = warp_sum(count);
    __syncwarp();
    if (team.lane() == 0) {
      bins[bin][0] = weight;
      bins[bin][1] = count;
    }
  }
  __syncthreads();
  const int mine = min(team.thread(), 2 * kBins - 1);
  return team.share(bins[mine / 2][mine % 2], 2 * kBins);
}

// One pass: weights into columns of the thread's own, without atomics.
template <class Team, class Order, int kBins>
__device__ auto fill_bins(Team& team, const float* row, const Order& order, const Bracket& bracket,
                          const Bins<kBins>& bins, bool is_first) {
  auto& columns = team.shared.bins;
  const int column = team.thread();
  __syncthreads();
  for (auto& bin : columns) bin[column] = 0;
  if (is_first) {  // every element, by distance
    team.walk(row, [&](float x, int token) {
      const uint64_t weight = order.weight(x, token);
      columns[bins.bin_of(order.distance(x))][column] += weight > 0 ? Team::kCount + weight : 0;
    });
  } else {
    const auto is_inside = [&](float x) { return bracket.has(order.distance(x)); };
    team.search(row, is_inside, [&](float x, int token) {
      const uint64_t weight = order.weight(x, token), key = order.key(x, token);
      if (weight == 0 || !bracket.has(key)) return;
      const int bin = bins.by_distance ? bins.bin_of(order.distance(x))
                                       : static_cast<int>((bracket.hi - key) >> bins.shift);
      columns[bin][column] += Team::kCount + weight;
    });
  }
  return sum_bins(team);
}

// The key of the first block's list at which weights, added to `reached`, come to `target`; in the
// first thread.
template <class Team>
__device__ uint64_t find_cut_in_list(Team& team, int count, uint64_t reached, uint64_t target) {
  auto& list = team.shared.list;
  if (count > Team::kThreads) {
    team.sort_list(count);
    return list.keys[team.find(list.weights, count, reached, target)];
  }
  const typename Team::Pairs pairs(count);
  const uint64_t key = pairs.has_candidate() ? list.keys[pairs.index] : 0;
  const uint64_t above =
      reached + pairs.sum([&](int j) { return list.keys[j] > key ? list.weights[j] : 0; });
  const bool is_cut = pairs.is_first_lane() && above < target;
  return team.block_smallest(is_cut ? key : ~uint64_t{0});
}

// The smallest key that is kept if weights are added from the largest key down until they reach
// target_of(their sum). `order` has distance(x), a float of at least 0 that never falls as keys
// fall; weight(x, token), 0 for elements that do not take part; and key(x, token). `width` is that
// of the first pass's bins.
template <class Team, class Order, class Target>
__device__ uint64_t find_cut(Team& team, const float* row, const Order& order, float width,
                             const Target& target_of) {
  constexpr int kBins = Team::kTile.num_bins;
  constexpr int kMostByDistance = 3;  // passes; then by key, which always comes to an end
  Bracket bracket;
  float base = 0.0f;
  uint64_t reached = 0, target = 0;
  int count = 0;
  for (int pass = 0; pass == 0 || count > Team::kTile.list_size; ++pass) {
    const int bits = 64 - __clzll(static_cast<long long>(bracket.hi - bracket.lo));
    const Bins<kBins> bins{.by_distance = pass < kMostByDistance,
                           .base = base,
                           .scale = 1.0f / width,
                           .shift = max(0, bits - (31 - __clz(kBins)))};
    team.clear_list();
    const auto* parts = fill_bins(team, row, order, bracket, bins, pass == 0);
    // A lane for each bin.
    uint64_t weight = 0, in_bin = 0;
#pragma unroll 2
    for (int part = 0; part < team.num_parts && team.lane() < kBins; ++part) {
      weight += parts[part][2 * team.lane()];
      in_bin += parts[part][2 * team.lane() + 1];
    }
    const uint64_t up_to = warp_sum_up_to(weight);
    if (pass == 0) target = target_of(__shfl_sync(0xffffffffu, up_to, tile::kWarpSize - 1));
    const uint32_t reaches = __ballot_sync(0xffffffffu, reached + up_to >= target);
    const int bin = __ffs(static_cast<int>(reaches)) - 1;  // all of them together reach it
    reached += __shfl_sync(0xffffffffu, up_to - weight, bin);
    count = static_cast<int>(__shfl_sync(0xffffffffu, in_bin, bin));
    bracket.narrow(bins, bin);
    base += static_cast<float>(bin) * width;
    if (bin < kBins - 1) width /= static_cast<float>(kBins);  // the last bin has no end
  }

  const auto is_inside = [&](float x) { return bracket.has(order.distance(x)); };
  team.search(row, is_inside, [&](float x, int token) {
    const uint64_t weight = order.weight(x, token), key = order.key(x, token);
    if (weight > 0 && bracket.has(key)) team.append(key, weight);
  });
  team.meet_all();
  uint64_t cut = 0;
  if (team.rank == 0) cut = find_cut_in_list(team, count, reached, target);
  return team.share(cut, 1)[0][0];
}

// An order of find_cut: by logit, each token counting 1.
struct OrderByRank {
  float largest;
  __device__ float distance(float x) const { return largest - x; }
  __device__ uint64_t weight(float x, int) const { return x > kNever ? 1 : 0; }
  __device__ uint64_t key(float x, int token) const { return sampling::key_of(x, token); }
};

}  // namespace tessera::kernels
