// The blocks that share a row of logits: their parts of it, what they tell each other, and a list
// of candidates in the memory of the first. Everything is an integer, so results do not depend on
// how a row is split or on the order in which threads arrive.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "core/sampling_math.h"
#include "kernels/launch.h"
#include "kernels/sampling/params.h"
#include "tessera/core/device.h"
#include "tile/arch.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cluster_words.cuh"
#include "tile/reduce.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

struct TeamTile {
  int num_threads;
  int num_bins;   // of one pass of find_cut: a power of two
  int list_size;  // most candidates looked at one by one: a power of two
};

// The portable tile fits into the 99 KB of shared memory that every GPU from sm_80 on has.
constexpr TeamTile team_tile(Portable) { return {512, 8, 2048}; }
constexpr TeamTile team_tile(Sm90) { return {512, 32, 4096}; }

template <TeamTile kTile>
struct TeamShared {
  struct List {
    uint64_t keys[kTile.list_size];
    uint64_t weights[kTile.list_size];
  };
  union {
    uint64_t bins[kTile.num_bins][kTile.num_threads];     // a column for each thread
    uint64_t chunks[sampling::kMaxVocab / kSampleChunk];  // sums of weights
    uint64_t typical_keys[kTile.num_threads];
  };
  List list;
  uint64_t exchange[2][kMaxSampleParts][2 * kTile.num_bins];
  uint64_t warp_words[2][tile::kMaxWarps];
  uint32_t distances[kTile.num_threads];
  uint32_t list_count;
  int found;
};

__device__ inline float multiply_add(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline float larger_of(float a, float b) { return fmaxf(a, b); }
__device__ inline float whole_part(float y, int& negated) {
  constexpr float kNoFraction = 12582912.0f;  // 1.5 * 2^23: the sum is rounded to a whole number
  const float sum = __fadd_rd(y, kNoFraction);
  negated = __float_as_int(kNoFraction) - __float_as_int(sum);
  return __fsub_rn(sum, kNoFraction);
}
// What sampling::weight_of needs. Pointers, which it may call although it is not marked as device
// code; they are inlined.
struct DeviceMath {
  float (*fma)(float, float, float) = &multiply_add;
  float (*larger)(float, float) = &larger_of;
  float (*floor)(float, int&) = &whole_part;
};

// log2(weight / kOne), each step rounded on its own, as on the CPU.
__device__ inline float log2_weight(float x, float largest, float scale) {
  return __fmul_rn(__fsub_rn(x, largest), scale);
}

__device__ inline uint64_t warp_sum(uint64_t value, int num_lanes = tile::kWarpSize) {
  for (int lane = num_lanes / 2; lane > 0; lane /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, lane);
  }
  return value;
}

__device__ inline uint64_t warp_largest(uint64_t value) {
  TESSERA_UNROLL
  for (int lane = tile::kWarpSize / 2; lane > 0; lane /= 2) {
    value = max(value, __shfl_xor_sync(0xffffffffu, value, lane));
  }
  return value;
}

// The sum over the lanes up to this one.
__device__ inline uint64_t warp_sum_up_to(uint64_t value) {
  const int lane = static_cast<int>(threadIdx.x) % tile::kWarpSize;
  TESSERA_UNROLL
  for (int step = 1; step < tile::kWarpSize; step *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// The blocks of a row are a cluster on sm_90, and one block elsewhere.
__device__ inline void meet(Portable) { __syncthreads(); }
__device__ inline void meet(Sm90) {
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

// The same variable in the shared memory of block `part`.
__device__ inline void store_part(Portable, uint64_t* mine, int, uint64_t value) { *mine = value; }
__device__ inline void store_part(Sm90, uint64_t* mine, int part, uint64_t value) {
  const uint32_t address =
      tile::ptx::mapa(tile::ptx::shared_address(mine), static_cast<uint32_t>(part));
  tile::ptx::store_cluster_word(address, value);
}
__device__ inline uint32_t load_part(Portable, const uint32_t* mine, int) { return *mine; }
__device__ inline uint32_t load_part(Sm90, const uint32_t* mine, int part) {
  return tile::ptx::load_cluster(
      tile::ptx::mapa(tile::ptx::shared_address(mine), static_cast<uint32_t>(part)));
}
__device__ inline uint32_t add_part(Portable, uint32_t* mine, int, uint32_t value) {
  return atomicAdd(mine, value);
}
__device__ inline uint32_t add_part(Sm90, uint32_t* mine, int part, uint32_t value) {
  return tile::ptx::add_cluster(
      tile::ptx::mapa(tile::ptx::shared_address(mine), static_cast<uint32_t>(part)), value);
}

template <class Arch, bool kIsVectorized, bool kHasMasks = false>
struct RowTeam {
  static constexpr TeamTile kTile = team_tile(Arch{});
  static constexpr int kThreads = kTile.num_threads;
  static constexpr int kWarps = kThreads / tile::kWarpSize;
  static constexpr int kSize = kIsVectorized ? 4 : 1;
  // A bin's column holds how many elements there are above the sum of their weights: a thread has
  // at most 2^20 / 512 elements of at most kOne.
  static constexpr uint64_t kCount = uint64_t{1} << 52;
  using Shared = TeamShared<kTile>;
  using Tag = Arch;

  Shared& shared;
  int rank;  // of this block
  int num_parts;
  int begin;  // tokens of this block
  int end;
  const uint32_t* mask = nullptr;  // of the row, a bit for each token; null: all are in it
  int parity = 0;
  int word_parity = 0;

  __device__ RowTeam(Shared& memory, int vocab, int parts)
      : shared(memory), rank(static_cast<int>(blockIdx.x) % parts), num_parts(parts) {
    const int num_chunks = (vocab + kSampleChunk - 1) / kSampleChunk;
    const int share = (num_chunks + parts - 1) / parts * kSampleChunk;
    begin = min(rank * share, vocab);
    end = min(begin + share, vocab);
    shared.distances[thread()] = 0;
    if (thread() == 0) shared.list_count = 0;
    meet(Arch{});  // every block runs, so that its memory may be written
  }

  __device__ static int thread() { return static_cast<int>(threadIdx.x); }
  __device__ static int lane() { return thread() % tile::kWarpSize; }
  __device__ static int warp() { return thread() / tile::kWarpSize; }
  __device__ void meet_all() { meet(Arch{}); }

  __device__ static void load(const float* from, float (&x)[1]) { x[0] = *from; }
  __device__ static void load(const float* from, float (&x)[4]) {
    const float4 v = *reinterpret_cast<const float4*>(from);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  }

  // A logit as the row's mask shows it: -infinity outside. Broken ones are shown as they are.
  __device__ float masked(float x, int token) const {
    if (!kHasMasks || mask == nullptr) return x;
    const bool is_inside = (mask[token / 32] >> (token % 32) & 1u) != 0;
    return is_inside || !(x < __builtin_huge_valf()) ? x : -__builtin_huge_valf();
  }
  __device__ void load_masked(const float* row, int first, float (&x)[kSize]) const {
    load(row + first, x);
    if constexpr (kHasMasks) {
      TESSERA_UNROLL
      for (int k = 0; k < kSize; ++k) x[k] = masked(x[k], first + k);
    }
  }

  // Calls f(logit, token) for every `step`-th vector of [first, last) from the vector `place` on,
  // in ascending order. `first` is a multiple of four. kLoads are in flight for each thread.
  template <int kLoads, class F>
  __device__ void walk_from(const float* row, int first, int last, int place, int step,
                            F&& f) const {
    const int limit = (last + kSize - 1) / kSize;
    for (int at = first / kSize + place; at < limit; at += kLoads * step) {
      float x[kLoads][kSize];
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        const int i = at + j * step;
        if (i < limit) load_masked(row, i * kSize, x[j]);
      }
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        const int i = at + j * step;
        if (i >= limit) continue;
        TESSERA_UNROLL
        for (int k = 0; k < kSize; ++k) f(x[j][k], i * kSize + k);
      }
    }
  }

  // Calls f(logit, token) for this thread's tokens of [first, last) for which test(logit) holds:
  // few of them. The code of f is there once, not for every load in flight: it is often long, and
  // run from a cold instruction cache.
  template <int kLoads, class Test, class F>
  __device__ void search(const float* row, int first, int last, Test&& test, F&& f) const {
    const int limit = (last + kSize - 1) / kSize;
    for (int at = first / kSize + thread(); at < limit; at += kLoads * kThreads) {
      float x[kLoads][kSize];
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        const int i = at + j * kThreads;
        if (i < limit) load_masked(row, i * kSize, x[j]);
      }
      uint32_t found = 0;
      TESSERA_UNROLL
      for (int j = 0; j < kLoads; ++j) {
        if (at + j * kThreads >= limit) continue;
        TESSERA_UNROLL
        for (int k = 0; k < kSize; ++k) found |= test(x[j][k]) ? 1u << (j * kSize + k) : 0u;
      }
#pragma unroll 1
      for (; found != 0; found &= found - 1) {
        const int bit = __ffs(static_cast<int>(found)) - 1;
        const int token = (at + bit / kSize * kThreads) * kSize + bit % kSize;
        f(masked(row[token], token), token);
      }
    }
  }
  template <class Test, class F>
  __device__ void search(const float* row, Test&& test, F&& f) const {
    search<4>(row, begin, end, test, f);
  }

  // This thread's tokens of [first, last), for an f that costs little beside its load.
  template <class F>
  __device__ void skim(const float* row, int first, int last, F&& f) const {
    walk_from<8>(row, first, last, thread(), kThreads, f);
  }
  // This thread's tokens of the block's part.
  template <class F>
  __device__ void walk(const float* row, F&& f) const {
    walk_from<4>(row, begin, end, thread(), kThreads, f);
  }
  // This lane's tokens of [first, last), which the warp walks alone.
  template <class F>
  __device__ void walk_warp(const float* row, int first, int last, F&& f) const {
    walk_from<4>(row, first, last, lane(), tile::kWarpSize, f);
  }

  // The values of threads 0 to count - 1 of every block, as [part][thread]. Valid until the call
  // after the next.
  __device__ const uint64_t (*share(uint64_t value, int count))[2 * kTile.num_bins] {
    auto* slots = shared.exchange[parity];
    parity ^= 1;
    if (thread() < count) {
#pragma unroll 1
      for (int part = 0; part < num_parts; ++part) {
        store_part(Arch{}, &slots[rank][thread()], part, value);
      }
    }
    meet_all();
    return slots;
  }

  // Over the threads of this block; every thread gets the result. One barrier.
  __device__ uint64_t block_sum(uint64_t value) {
    uint64_t* words = next_words(warp_sum(value));
    return warp_sum(lane() < kWarps ? words[lane()] : 0);
  }
  __device__ uint64_t block_largest(uint64_t value) {
    uint64_t* words = next_words(warp_largest(value));
    return warp_largest(lane() < kWarps ? words[lane()] : 0);
  }
  __device__ uint64_t block_smallest(uint64_t value) { return ~block_largest(~value); }

  // Over the threads of all blocks.
  __device__ uint64_t sum(uint64_t value) {
    const auto* all = share(block_sum(value), 1);
    value = 0;
#pragma unroll 2
    for (int part = 0; part < num_parts; ++part) value += all[part][0];
    return value;
  }
  __device__ uint64_t largest(uint64_t value) {
    const auto* all = share(block_largest(value), 1);
    value = 0;
#pragma unroll 2
    for (int part = 0; part < num_parts; ++part) value = max(value, all[part][0]);
    return value;
  }

  // The sum of `value` over the threads of this block before this one. One barrier.
  __device__ uint64_t sum_before(uint64_t value) {
    const uint64_t inclusive = warp_sum_up_to(value);
    const uint64_t in_warp = __shfl_sync(0xffffffffu, inclusive, tile::kWarpSize - 1);
    const uint64_t* words = next_words(in_warp);
    return warp_sum(lane() < warp() ? words[lane()] : 0) + inclusive - value;
  }

  // The first place at which `reached` and the weights up to it come to `target`; the last if none.
  __device__ int find(const uint64_t* weights, int count, uint64_t reached, uint64_t target) {
    const int share = (count + kThreads - 1) / kThreads;
    const int first = min(thread() * share, count), last = min(first + share, count);
    uint64_t mine = 0;
#pragma unroll 2
    for (int i = first; i < last; ++i) mine += weights[i];
    if (thread() == 0) shared.found = count - 1;
    uint64_t at = reached + sum_before(mine);  // has a barrier
    if (at < target && at + mine >= target) {
#pragma unroll 1
      for (int i = first; i < last; ++i) {
        at += weights[i];
        if (at < target) continue;
        shared.found = i;
        break;
      }
    }
    __syncthreads();
    const int found = shared.found;
    __syncthreads();  // before it is written again
    return found;
  }

  // --- the list of candidates, in the first block ----------------------------------------------

  // Before the list is filled anew; a meeting of the blocks must follow.
  __device__ void clear_list() {
    if (rank == 0 && thread() == 0) shared.list_count = 0;
  }

  // From any block. Beyond the list's size candidates are counted only.
  __device__ void append(uint64_t key, uint64_t weight) {
    const uint32_t at = add_part(Arch{}, &shared.list_count, 0, 1);
    if (at >= static_cast<uint32_t>(kTile.list_size)) return;
    store_part(Arch{}, &shared.list.keys[at], 0, key);
    store_part(Arch{}, &shared.list.weights[at], 0, weight);
  }

  // How many candidates have been appended; the blocks have met since.
  __device__ int list_count() const {
    return static_cast<int>(load_part(Arch{}, &shared.list_count, 0));
  }

  // Several lanes for each of at most kThreads candidates, so that all pairs are looked at quickly.
  struct Pairs {
    int count;
    int num_lanes;  // of a candidate: a power of two
    int index;      // of this thread's candidate; may be `count` or more
    int lane;       // among those of the candidate

    __device__ explicit Pairs(int candidates) : count(candidates) {
      int places = kThreads / tile::kWarpSize;
      while (places < count) places *= 2;
      num_lanes = kThreads / places;
      index = thread() / num_lanes;
      lane = thread() % num_lanes;
    }
    __device__ bool has_candidate() const { return index < count; }
    __device__ bool is_first_lane() const { return lane == 0 && index < count; }

    // The sum of value(j) over all candidates j: the same in all lanes of a candidate.
    template <class F>
    __device__ uint64_t sum(F&& value) const {
      uint64_t total = 0;
#pragma unroll 4
      for (int j = lane; j < count; j += num_lanes) total += value(j);
      return warp_sum(total, num_lanes);
    }
  };

  // Bitonic, largest key first. In the first block.
  __device__ void sort_list(int count) {
    auto& list = shared.list;
    int size = 1;
    while (size < count) size *= 2;
    for (int i = count + thread(); i < size; i += kThreads) list.keys[i] = list.weights[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
      for (int step = run / 2; step > 0; step /= 2) {
#pragma unroll 1
        for (int i = thread(); i < size / 2; i += kThreads) {
          const int low = i / step * 2 * step + i % step, high = low + step;
          const bool falls = (low & run) == 0;
          const uint64_t a = list.keys[low], b = list.keys[high];
          if ((a < b) != falls || a == b) continue;
          list.keys[low] = b;
          list.keys[high] = a;
          const uint64_t weight = list.weights[low];
          list.weights[low] = list.weights[high];
          list.weights[high] = weight;
        }
        __syncthreads();
      }
    }
  }

 private:
  // One word for each warp, in turns of two buffers so that one barrier is enough.
  __device__ uint64_t* next_words(uint64_t value) {
    uint64_t* words = shared.warp_words[word_parity];
    word_parity ^= 1;
    if (lane() == 0) words[warp()] = value;
    __syncthreads();
    return words;
  }
};

inline bool is_row_vectorized(const TensorView& rows) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
  return is_aligned && rows.size(1) % 4 == 0 && (rows.size(0) <= 1 || rows.stride(0) % 4 == 0);
}

template <class Arch>
int team_parts(const TensorView& logits) {
  if (Arch::library != Library::sm90) return 1;
  return choose_sample_parts(logits.size(0), logits.size(1), device_info(logits.device).num_sms);
}

template <class Arch>
LaunchShape team_shape(const TensorView& logits, int num_parts) {
  return {.grid = dim3(static_cast<unsigned>(logits.size(0) * num_parts)),
          .block = dim3(static_cast<unsigned>(team_tile(Arch{}).num_threads)),
          .shared_bytes = sizeof(TeamShared<team_tile(Arch{})>),
          .cluster = static_cast<unsigned>(num_parts),
          .overlaps_previous = kOverlaps<Arch>};
}

}  // namespace tessera::kernels
