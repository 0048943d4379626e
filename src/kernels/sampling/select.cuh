// Selection in a row of logits that several blocks share: sums over all blocks, the key at which
// weights reach a target, and short sorted lists. Everything is an integer, so the answers do not
// depend on how the row is split or in which order blocks arrive.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "core/sampling_math.h"
#include "kernels/sampling/params.h"
#include "tile/arch.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/reduce.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

struct SelectTile {
  int num_threads;
  int num_bins;   // of one pass of find_cut: a power of two
  int list_size;  // candidates that are looked at one by one: a power of two
};

// The portable tile fits into the 99 KB of shared memory that every GPU from sm_80 has.
constexpr SelectTile select_tile(Portable) { return {512, 8, 2048}; }
constexpr SelectTile select_tile(Sm90) { return {512, 32, 4096}; }

template <SelectTile kTile>
struct SelectShared {
  struct List {
    uint64_t keys[kTile.list_size];
    uint64_t weights[kTile.list_size];
  };
  union {
    uint64_t bins[kTile.num_bins][kTile.num_threads];  // a column for each thread
    List copy;                                         // of the list, in another order
    uint64_t chunks[sampling::kMaxVocab / kSampleChunk];
  };
  List list;
  uint64_t exchange[2][kMaxSampleParts][2 * kTile.num_bins];
  uint64_t warp_words[tile::kMaxWarps];
  uint32_t digits[256];
  uint32_t list_count;
  uint32_t found;
  uint32_t prefix;
};

__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }

// log2 of a weight but for its unit: each step rounded on its own, as the CPU does it.
__device__ inline float log2_weight(float x, float largest, float scale) {
  return __fmul_rn(__fsub_rn(x, largest), scale);
}

__device__ inline uint64_t warp_sum(uint64_t value) {
  TESSERA_UNROLL
  for (int lane = tile::kWarpSize / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, lane);
  }
  return value;
}

__device__ inline uint64_t warp_largest(uint64_t value) {
  TESSERA_UNROLL
  for (int lane = tile::kWarpSize / 2; lane > 0; lane /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, value, lane);
    value = other > value ? other : value;
  }
  return value;
}

// Blocks of a cluster on sm_90; one block elsewhere.
__device__ inline void meet(Portable) { __syncthreads(); }
__device__ inline void meet(Sm90) {
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

// Writes `value` to the place of `mine` in the shared memory of block `part`.
__device__ inline void store_part(Portable, uint64_t* mine, int, uint64_t value) { *mine = value; }
__device__ inline void store_part(Sm90, uint64_t* mine, int part, uint64_t value) {
  const uint32_t address =
      tile::ptx::mapa(tile::ptx::shared_address(mine), static_cast<uint32_t>(part));
  tile::ptx::store_cluster(address, static_cast<uint32_t>(value));
  tile::ptx::store_cluster(address + 4, static_cast<uint32_t>(value >> 32));
}

// The part of a row that this block walks, and what all blocks of the row know together.
template <class Arch, bool kIsVectorized>
struct RowTeam {
  static constexpr SelectTile kTile = select_tile(Arch{});
  static constexpr int kThreads = kTile.num_threads;
  static constexpr int kLoads = 8;  // in flight for each thread
  using Shared = SelectShared<kTile>;
  using Tag = Arch;

  Shared& shared;
  int rank;
  int num_parts;
  int begin;  // tokens of this block
  int end;
  int parity = 0;

  __device__ RowTeam(Shared& memory, int vocab, int parts)
      : shared(memory), rank(static_cast<int>(blockIdx.x) % parts), num_parts(parts) {
    const int num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
    const int share = (num_chunks + parts - 1) / parts * kSampleChunk;
    begin = min(rank * share, vocab);
    end = min(begin + share, vocab);
    meet(Arch{});  // every block runs, so that its memory may be written
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }

  __device__ static void load(const float* from, float (&x)[1]) { x[0] = *from; }
  __device__ static void load(const float* from, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  }

  // Calls f(logit, token) for this thread's tokens of [first, last), in ascending order. `first` is
  // a multiple of four.
  template <class F>
  __device__ void walk(const float* row, int first, int last, F&& f) const {
    constexpr int kSize = kIsVectorized ? 4 : 1;
    const int limit = (last + kSize - 1) / kSize;
    for (int at = first / kSize + thread(); at < limit; at += kLoads * kThreads) {
      float x[kLoads][kSize];
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        const int i = at + j * kThreads;
        if (i >= limit) continue;
        load(row + i * kSize, x[j]);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        const int i = at + j * kThreads;
        if (i >= limit) continue;
        TESSERA_UNROLL
        for (int k = 0; k < kSize; ++k) f(x[j][k], i * kSize + k);
      }
    }
  }

  // The same for a warp, each lane calling f for its tokens of [first, last): at most a chunk.
  template <class F>
  __device__ void walk_warp(const float* row, int first, int last, F&& f) const {
    constexpr int kSize = kIsVectorized ? 4 : 1;
    constexpr int kBatch = kIsVectorized ? kSampleChunk / (4 * 32) : 8;
    const int lane = thread() % 32;
    for (int at = first + lane * kSize; at < last; at += kBatch * 32 * kSize) {
      float x[kBatch][kSize];
      TESSERA_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const int i = at + j * 32 * kSize;
        if (i < last) load(row + i, x[j]);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kBatch; ++j) {
        const int i = at + j * 32 * kSize;
        if (i >= last) continue;
        TESSERA_UNROLL
        for (int k = 0; k < kSize; ++k) f(x[j][k], i + k);
      }
    }
  }

  // The values of threads 0 to count - 1 of every block, as [part][thread]. Good until the call
  // after the next.
  __device__ const uint64_t (*share(uint64_t value, int count))[2 * kTile.num_bins] {
    auto* slots = shared.exchange[parity];
    parity ^= 1;
    if (thread() < count) {
      for (int part = 0; part < num_parts; ++part) {
        store_part(Arch{}, &slots[rank][thread()], part, value);
      }
    }
    meet(Arch{});
    return slots;
  }

  // Over all threads of all blocks; every thread gets the answer.
  __device__ uint64_t largest(uint64_t value) {
    value = warp_largest(value);
    if (thread() % 32 == 0) shared.warp_words[thread() / 32] = value;
    __syncthreads();
    const int lane = thread() % 32;
    value = warp_largest(lane < kThreads / 32 ? shared.warp_words[lane] : 0);
    const auto* all = share(value, 1);
    value = all[0][0];
    for (int part = 1; part < num_parts; ++part) value = max(value, all[part][0]);
    return value;
  }

  __device__ uint64_t sum(uint64_t value) {
    value = warp_sum(value);
    if (thread() % 32 == 0) shared.warp_words[thread() / 32] = value;
    __syncthreads();
    const int lane = thread() % 32;
    value = warp_sum(lane < kThreads / 32 ? shared.warp_words[lane] : 0);
    const auto* all = share(value, 1);
    value = 0;
    for (int part = 0; part < num_parts; ++part) value += all[part][0];
    return value;
  }

  // Sum of `value` over the threads of this block before this one, and over all of them.
  __device__ uint64_t sum_before(uint64_t value, uint64_t& total) {
    uint64_t inclusive = value;
    const int lane = thread() % 32, warp = thread() / 32;
    TESSERA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(0xffffffffu, inclusive, step);
      if (lane >= step) inclusive += other;
    }
    __syncthreads();  // warp_words may still be read
    if (lane == 31) shared.warp_words[warp] = inclusive;
    __syncthreads();
    const uint64_t mine = lane < kThreads / 32 ? shared.warp_words[lane] : 0;
    total = warp_sum(mine);
    return warp_sum(lane < warp ? mine : 0) + inclusive - value;
  }

  // --- lists -------------------------------------------------------------------------------

  __device__ void clear_list() {
    __syncthreads();
    if (thread() == 0) shared.list_count = 0;
    __syncthreads();
  }

  __device__ void append(uint64_t key, uint64_t weight) {
    const uint32_t at = atomicAdd(&shared.list_count, 1);
    if (at >= static_cast<uint32_t>(kTile.list_size)) return;  // counted all the same
    shared.list.keys[at] = key;
    shared.list.weights[at] = weight;
  }

  // Joins the blocks' lists in the first block; returns their length, or -1 if they are too long.
  __device__ int join_lists() {
    __syncthreads();
    const uint32_t count = shared.list_count;
    const auto* counts = share(count, 1);
    int before = 0, total = 0;
    bool fits = true;
    for (int part = 0; part < num_parts; ++part) {
      fits = fits && counts[part][0] <= static_cast<uint64_t>(kTile.list_size);
      if (part == rank) before = total;
      total += static_cast<int>(min(counts[part][0], uint64_t{1} << 20));
    }
    fits = fits && total <= kTile.list_size;
    if (fits && rank != 0) {
      for (int i = thread(); i < static_cast<int>(count); i += kThreads) {
        store_part(Arch{}, &shared.list.keys[before + i], 0, shared.list.keys[i]);
        store_part(Arch{}, &shared.list.weights[before + i], 0, shared.list.weights[i]);
      }
    }
    meet(Arch{});
    return fits ? total : -1;
  }

  // Bitonic, largest key first.
  __device__ void sort(typename Shared::List& list, int count) {
    int size = 1;
    while (size < count) size *= 2;
    for (int i = count + thread(); i < size; i += kThreads) list.keys[i] = list.weights[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
      for (int step = run / 2; step > 0; step /= 2) {
        for (int i = thread(); i < size / 2; i += kThreads) {
          const int low = i / step * 2 * step + i % step, high = low + step;
          const bool falls = (low & run) == 0;
          const uint64_t a = list.keys[low], b = list.keys[high];
          if ((a < b) == falls && a != b) {
            list.keys[low] = b;
            list.keys[high] = a;
            const uint64_t weight = list.weights[low];
            list.weights[low] = list.weights[high];
            list.weights[high] = weight;
          }
        }
        __syncthreads();
      }
    }
  }

  // The first place at which `reached` and the weights up to it come to `target`; the last if none.
  __device__ int find(const uint64_t* weights, int count, uint64_t reached, uint64_t target) {
    const int share = (count + kThreads - 1) / kThreads;
    const int first = min(thread() * share, count), last = min(first + share, count);
    uint64_t mine = 0, total;
    for (int i = first; i < last; ++i) mine += weights[i];
    if (thread() == 0) shared.found = static_cast<uint32_t>(count - 1);
    uint64_t at = reached + sum_before(mine, total);  // has barriers
    if (at < target && at + mine >= target) {
      for (int i = first; i < last; ++i) {
        at += weights[i];
        if (at < target) continue;
        shared.found = static_cast<uint32_t>(i);
        break;
      }
    }
    __syncthreads();
    const int found = static_cast<int>(shared.found);
    __syncthreads();
    return found;
  }

  // --- the key at which weights reach a target -----------------------------------------------

  // Keys are cut into bins, pass by pass, until the bin with the answer is short enough to sort. By
  // value first, where keys are logits: bins of equal width below `high`. Then by the key's bits,
  // which always ends.
  struct Bracket {
    static constexpr int kMaxLevels = 3;
    float high[kMaxLevels], scale[kMaxLevels];
    int bin[kMaxLevels];
    int num_levels = 0;
    uint64_t lo = 1, hi = ~uint64_t{0};

    // Never falls as x falls.
    __device__ static int bin_of(float x, float high, float scale) {
      const float at = (high - x) * scale;
      return static_cast<int>(fminf(fmaxf(at, 0.0f), static_cast<float>(kTile.num_bins - 1)));
    }
    __device__ bool has(float x, uint64_t key) const {
      bool is_inside = key >= lo && key <= hi;
      TESSERA_UNROLL
      for (int level = 0; level < kMaxLevels; ++level) {
        if (level >= num_levels) continue;
        is_inside = is_inside && bin_of(x, high[level], scale[level]) == bin[level];
      }
      return is_inside;
    }
    __device__ void narrow(float from, float by, int to) {
      TESSERA_UNROLL
      for (int level = 0; level < kMaxLevels; ++level) {  // constant indices stay in registers
        if (level != num_levels) continue;
        high[level] = from;
        scale[level] = by;
        bin[level] = to;
      }
      ++num_levels;
    }
  };

  // The smallest key that is kept when weights are added from the largest key down until they reach
  // target_of(their sum). element(logit, token, key&, weight&) says what counts; a key of 0 does
  // not. `width`, the first pass's bins in units of logits, is 0 for keys that are not logits.
  template <class Element, class Target>
  __device__ uint64_t find_cut(const float* row, float highest, float width, uint64_t least_key,
                               const Element& element, const Target& target_of) {
    constexpr int kBins = kTile.num_bins;
    constexpr uint64_t kCount = uint64_t{1} << 52;  // a bin holds its count above its weight
    Bracket bracket;
    bracket.lo = least_key;
    bool is_first = true;
    uint64_t reached = 0, target = 0;
    while (true) {
      const bool by_value = width > 0 && bracket.num_levels < Bracket::kMaxLevels;
      const float scale = by_value ? 1.0f / width : 0.0f;
      const uint64_t range = bracket.hi - bracket.lo;
      const int bits = 64 - __clzll(static_cast<long long>(range));
      const int shift = max(0, bits - (31 - __clz(kBins)));
      for (int bin = 0; bin < kBins; ++bin) shared.bins[bin][thread()] = 0;
      walk(row, begin, end, [&](float x, int token) {
        uint64_t key, weight;
        element(x, token, key, weight);
        if (key == 0 || !bracket.has(x, key)) return;
        const int bin = by_value ? Bracket::bin_of(x, highest, scale)
                                 : static_cast<int>((bracket.hi - key) >> shift);
        shared.bins[bin][thread()] += kCount + weight;
      });
      __syncthreads();
      for (int bin = thread() / 32; bin < kBins; bin += kThreads / 32) {
        uint64_t weight = 0, count = 0;
        for (int i = thread() % 32; i < kThreads; i += 32) {
          const uint64_t both = shared.bins[bin][i];
          weight += both % kCount;
          count += both / kCount;
        }
        weight = warp_sum(weight);
        count = warp_sum(count);
        __syncwarp();
        if (thread() % 32 == 0) {
          shared.bins[bin][0] = weight;
          shared.bins[bin][1] = count;
        }
      }
      __syncthreads();
      const int mine = min(thread(), 2 * kBins - 1);
      const auto* parts = share(shared.bins[mine / 2][mine % 2], 2 * kBins);
      const auto total = [&](int word) {
        uint64_t value = 0;
        for (int part = 0; part < num_parts; ++part) value += parts[part][word];
        return value;
      };
      if (is_first) {
        uint64_t sum = 0;
        for (int bin = 0; bin < kBins; ++bin) sum += total(2 * bin);
        target = target_of(sum);
        is_first = false;
      }
      int bin = 0;
      for (; bin < kBins - 1; ++bin) {
        const uint64_t weight = total(2 * bin);
        if (reached + weight >= target) break;
        reached += weight;
      }
      const uint64_t count = total(2 * bin + 1);
      if (by_value) {
        bracket.narrow(highest, scale, bin);
        highest -= static_cast<float>(bin) * width;
        if (bin < kBins - 1) width /= static_cast<float>(kBins);  // the last bin has no lower end
      } else {
        bracket.hi -= static_cast<uint64_t>(bin) << shift;
        const uint64_t last = (uint64_t{1} << shift) - 1;
        bracket.lo = bracket.hi - bracket.lo > last ? bracket.hi - last : bracket.lo;
      }
      if (count <= static_cast<uint64_t>(kTile.list_size)) break;
    }
    clear_list();
    walk(row, begin, end, [&](float x, int token) {
      uint64_t key, weight;
      element(x, token, key, weight);
      if (key != 0 && bracket.has(x, key)) append(key, weight);
    });
    const int count = join_lists();
    uint64_t cut = 0;
    if (rank == 0) {
      sort(shared.list, count);
      cut = shared.list.keys[find(shared.list.weights, count, reached, target)];
    }
    const auto* cuts = share(cut, 1);
    return cuts[0][0];
  }

  // --- the best few ----------------------------------------------------------------------------

  // Each thread's largest logits of four parts of its tokens, as orders; 0: it has none.
  static constexpr int kTops = 4;
  static constexpr int kMostBest = 256;

  // The count-th largest of all tops of this block: at least that many of its logits are as large.
  __device__ uint32_t bound_of_best(const uint32_t (&tops)[kTops], int count) {
    uint32_t prefix = 0;
    int wanted = count;
    for (int shift = 24; shift >= 0; shift -= 8) {
      if (thread() < 256) shared.digits[thread()] = 0;
      __syncthreads();
      TESSERA_UNROLL
      for (int i = 0; i < kTops; ++i) {
        const bool takes_part = shift == 24 || tops[i] >> (shift + 8) == prefix >> (shift + 8);
        const uint32_t digit = takes_part ? tops[i] >> shift & 255u : 256u;
        const uint32_t peers = __match_any_sync(0xffffffffu, digit);
        const bool is_leader = __ffs(static_cast<int>(peers)) - 1 == thread() % 32;
        if (takes_part && is_leader) {
          atomicAdd(&shared.digits[digit], static_cast<uint32_t>(__popc(peers)));
        }
      }
      __syncthreads();
      if (thread() < 32) {  // lane l has digits 255 - 8 l and the seven below
        uint32_t mine = 0;
        for (int i = 0; i < 8; ++i) mine += shared.digits[255 - 8 * thread() - i];
        uint32_t inclusive = mine;
        TESSERA_UNROLL
        for (int step = 1; step < 32; step *= 2) {
          const uint32_t other = __shfl_up_sync(0xffffffffu, inclusive, step);
          if (thread() >= step) inclusive += other;
        }
        uint32_t before = inclusive - mine;
        if (before < static_cast<uint32_t>(wanted) && inclusive >= static_cast<uint32_t>(wanted)) {
          int digit = 255 - 8 * thread();
          while (before + shared.digits[digit] < static_cast<uint32_t>(wanted)) {
            before += shared.digits[digit--];
          }
          shared.found = before;
          shared.prefix = prefix | static_cast<uint32_t>(digit) << shift;
        }
      }
      __syncthreads();
      prefix = shared.prefix;
      wanted -= static_cast<int>(shared.found);
    }
    return prefix;
  }

  __device__ int quarter() const { return ((end - begin + kTops - 1) / kTops + 3) / 4 * 4; }

  // The `count` largest logits above -infinity, sorted, as keys in the first block's list; returns
  // how many there are, or -1 if ties make the list too long. count is at most kMostBest.
  __device__ int select_best(const float* row, const uint32_t (&tops)[kTops], int count) {
    clear_list();
    const uint32_t bound = bound_of_best(tops, count);
    TESSERA_UNROLL
    for (int i = 0; i < kTops; ++i) {
      if (tops[i] < bound) continue;  // most threads have none of the best: they read nothing
      const int first = begin + i * quarter();
      walk(row, first, min(first + quarter(), end), [&](float x, int token) {
        if (x > -__builtin_huge_valf() && sampling::order_of(x) >= bound) {
          append(sampling::key_of(x, token), 0);
        }
      });
    }
    const int total = join_lists();
    if (rank == 0 && total > 0) sort(shared.list, total);
    return min(total, count);
  }

  // The same by a search for the last of them, for rows with too many equals.
  __device__ int select_by_cut(const float* row, float largest_logit, int count) {
    const auto element = [&](float x, int token, uint64_t& key, uint64_t& weight) {
      key = x > -__builtin_huge_valf() ? sampling::key_of(x, token) : 0;
      weight = 1;
    };
    const auto target = [&](uint64_t all) { return min(all, static_cast<uint64_t>(count)); };
    const uint64_t cut = find_cut(row, largest_logit, 0.5f, 1, element, target);
    clear_list();
    walk(row, begin, end, [&](float x, int token) {
      const uint64_t key = sampling::key_of(x, token);
      if (key >= cut) append(key, 0);
    });
    const int total = join_lists();
    if (rank == 0) sort(shared.list, total);
    return total;
  }
};

}  // namespace tessera::kernels
