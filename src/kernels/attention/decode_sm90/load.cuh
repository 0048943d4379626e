// A warp's ring of halves: the keys of a step, then its values, brought by the copy engine as long
// as there is room.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_sm90/params.h"
#include "kernels/attention/decode_sm90/tile.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/tma.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

template <class Tile>
struct alignas(1024) Sm90DecodeShared {
  static constexpr int kPitch = Tile::kD + 4;  // so that rows start in different banks
  static constexpr int kScaleSlot = std::max(Tile::kScaleBytes, 16);
  union {
    char halves[Tile::kWarps][Tile::kDepth][Tile::kHalfBytes];
    float o[Tile::kWarps][Tile::kRows][kPitch];
  };
  alignas(16) char scales[Tile::kWarps][Tile::kDepth][kScaleSlot];
  uint64_t full[Tile::kWarps][Tile::kDepth];
  float reference[Tile::kWarps][Tile::kRows];
  float sum[Tile::kWarps][Tile::kRows];
  float2 node[Tile::kRows];  // reference and sum over the block
  bool is_last;
};

// The token of one of the queries that share keys: query / group, which is exact for 16 tokens and
// groups of up to kMostGroup.
__device__ inline int token_of(const Sm90DecodeParams& p, int query) {
  return static_cast<int>(static_cast<uint32_t>(query) * p.inverse_group >> kInverseBits);
}

// The keys one warp reads of one sequence and head.
struct KeyRun {
  int sequence;
  int kv_head;
  int len;         // of the sequence
  int first_key;   // that a query sees
  int begin, end;  // steps
};

// Where the pages of a run lie: each lane knows one box's, 32 ahead of the first in use.
class PageCursor {
 public:
  __device__ void start(const Sm90DecodeParams& p, const KeyRun& run, int lane) {
    table_ = p.page_table == nullptr ? nullptr : p.page_table + run.sequence * p.table_stride;
    shift_ = p.log2_boxes_per_page;
    base_ = 2 * run.begin;
    end_ = min((run.len + kBoxKeys - 1) / kBoxKeys, 2 * run.end);
    // A long box has both halves of a step in one page, which holds a key that is seen.
    first_ = p.has_long_boxes ? 2 * (run.first_key / kStepKeys) : run.first_key / kBoxKeys;
    sequence_ = run.sequence;
    if (table_ == nullptr) return;
    pages_ = look_up(base_ + lane);
    next_pages_ = look_up(base_ + 32 + lane);
  }
  // Boxes are asked for in order. Every lane calls.
  __device__ __forceinline__ void move_to(int box, int lane) {
    if (table_ == nullptr || box < base_ + 32) return;
    base_ += 32;
    pages_ = next_pages_;
    next_pages_ = look_up(base_ + 32 + lane);
  }
  __device__ __forceinline__ int page(int box) const {
    return table_ == nullptr ? sequence_ : __shfl_sync(~0u, pages_, box - base_);
  }
  __device__ __forceinline__ int row(int box) const {
    return kBoxKeys * (table_ == nullptr ? box : box & ((1 << shift_) - 1));
  }
  // Whether a query sees keys there. Pages behind or before these may be another sequence's.
  __device__ __forceinline__ bool has(int box) const { return box >= first_ && box < end_; }

 private:
  __device__ int look_up(int box) const { return has(box) ? table_[box >> shift_] : 0; }

  const int32_t* table_;
  int shift_;
  int base_;  // whose page lane 0 knows
  int first_, end_;
  int sequence_;
  int pages_, next_pages_;
};

template <class Tile>
class HalfRing {
 public:
  static constexpr int kDepth = Tile::kDepth;

  __device__ HalfRing(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared, int warp, int lane)
      : p_(p),
        halves_(tile::ptx::shared_address(shared.halves[warp])),
        scales_(tile::ptx::shared_address(shared.scales[warp])),
        full_(tile::ptx::shared_address(shared.full[warp])),
        lane_(lane) {
    if (lane == 0) {
      TESSERA_UNROLL
      for (int i = 0; i < kDepth; ++i) tile::ptx::mbarrier_init(full_ + 8 * i, 1);
      tile::ptx::fence_mbarrier_init();
    }
    __syncwarp();
  }

  // Fills the ring with the first halves of a run.
  __device__ void start(const KeyRun& run) {
    run_ = run;
    cursor_.start(p_, run, lane_);
#pragma unroll 1
    for (int i = 0; i + 1 < kDepth; i += 2) {
      load<false>(run.begin + i / 2, i);
      load<true>(run.begin + i / 2, i + 1);
    }
    if constexpr (kDepth % 2 != 0) load<false>(run.begin + kDepth / 2, kDepth - 1);
    slot_ = 0;
    parity_ = 0;
  }

  __device__ __forceinline__ void wait() const {
    tile::ptx::mbarrier_wait(full_ + 8 * slot_, parity_);
  }
  __device__ __forceinline__ uint32_t half() const { return halves_ + slot_ * Tile::kHalfBytes; }
  __device__ __forceinline__ uint32_t scales() const {
    return scales_ + slot_ * Sm90DecodeShared<Tile>::kScaleSlot;
  }

  // The keys (kIsV: values) of `step` have been read by every lane: their place takes the half that
  // comes kDepth later.
  template <bool kIsV>
  __device__ __forceinline__ void next(int step) {
    __syncwarp();
    constexpr int kIndex = kDepth + (kIsV ? 1 : 0);
    load<kIndex % 2 != 0>(step + kIndex / 2, slot_);
    if (++slot_ == kDepth) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  template <bool kIsV>
  __device__ __forceinline__ void load(int step, int slot) {
    if (step >= run_.end) return;
    const int first = 2 * step;
    if constexpr (!kIsV) cursor_.move_to(first, lane_);
    constexpr int kNumScales = kIsV ? Tile::V::kNumScales : Tile::K::kNumScales;
    constexpr uint32_t kBytes = Tile::kBoxBytes + kBoxKeys * 2 * kNumScales;
    const uint32_t barrier = full_ + 8 * slot;
    const int page = cursor_.page(first);
    if constexpr (Tile::kPanels == 1) {
      if (p_.has_long_boxes) {
        if (!tile::ptx::elect_sync()) return;
        tile::ptx::mbarrier_arrive_expect_tx(barrier, 2 * kBytes);
        load_box<kIsV, 2>(page, cursor_.row(first), slot, 0, barrier);
        return;
      }
    }
    const int second_page = cursor_.page(first + 1);
    if (!tile::ptx::elect_sync()) return;
    const bool has_first = cursor_.has(first), has_second = cursor_.has(first + 1);
    tile::ptx::mbarrier_arrive_expect_tx(barrier, has_first && has_second ? 2 * kBytes : kBytes);
    if (has_first) load_box<kIsV, 1>(page, cursor_.row(first), slot, 0, barrier);
    if (has_second) load_box<kIsV, 1>(second_page, cursor_.row(first + 1), slot, 1, barrier);
  }

  template <bool kIsV, int kBoxes>
  __device__ __forceinline__ void load_box(int page, int row, int slot, int box, uint32_t barrier) {
    const CUtensorMap* map = kIsV ? &p_.v : &p_.k;
    // Made anew each time: two registers for all of the kernel are worth more.
    const tile::ptx::CachePolicy policy = tile::ptx::createpolicy_evict_first();
    const uint32_t to = halves_ + slot * Tile::kHalfBytes + box * Tile::kBoxBytes;
    tile::ptx::tensor_load(to, map, tile::ptx::Coord<5>{{0, row, 0, run_.kv_head, page}}, barrier,
                           policy);
    constexpr int kNumScales = kIsV ? Tile::V::kNumScales : Tile::K::kNumScales;
    if constexpr (kNumScales > 0) {
      const RowScaleParams& scales = kIsV ? p_.v_scales : p_.k_scales;
      constexpr int kBytes = kBoxKeys * 2 * kNumScales;
      const char* from = static_cast<const char*>(scales.data) +
                         2 * (page * scales.page + run_.kv_head * scales.head + row * kNumScales);
      tile::ptx::bulk_load(scales_ + slot * Sm90DecodeShared<Tile>::kScaleSlot + box * kBytes, from,
                           kBoxes * kBytes, barrier, policy);
    }
  }

  const Sm90DecodeParams& p_;
  uint32_t halves_, scales_, full_;
  int lane_;
  KeyRun run_;
  PageCursor cursor_;
  int slot_;
  uint32_t parity_;
};

}  // namespace tessera::kernels
