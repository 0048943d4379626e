// A warp's ring of slots in shared memory, filled by TMA: the keys of a step, then its values, or
// both in one slot. Each warp has its own ring and waits for nobody else.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/tile.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/tma.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels::decode_sm90 {

// The keys that one warp reads of one sequence and KV head.
struct KeyRun {
  int sequence;
  int kv_head;
  int len;        // of the sequence
  int first_key;  // the first one that any query sees
  StepRange steps;

  // The step that comes `i` steps after `step`.
  __device__ __forceinline__ int after(int step, int i) const {
    return step + (i << steps.log2_stride);
  }
};

// The pages of a run. Each lane holds the page of one box, for 16 steps from the first in use, and
// the page of one box of the 16 steps after those. Without pages every lane holds the sequence.
class PageCursor {
 public:
  __device__ void start(const Sm90DecodeParams& p, const KeyRun& run, int lane) {
    base_ = run.steps.begin;
    log2_stride_ = run.steps.log2_stride;
    end_ = min((run.len + kBoxKeys - 1) / kBoxKeys, 2 * run.steps.end);
    // A long box spans a whole step within one page, and that page has a key that some query sees.
    first_ = p.has_long_boxes ? 2 * (run.first_key / kStepKeys) : run.first_key / kBoxKeys;
    pages_ = next_pages_ = run.sequence;
    table_ = p.page_table == nullptr ? nullptr : p.page_table + run.sequence * p.table_stride;
    if (table_ == nullptr) return;
    pages_ = look_up(p, lane);
    next_pages_ = look_up(p, 32 + lane);
  }
  // Called by every lane, with steps in ascending order.
  __device__ __forceinline__ void move_to(const Sm90DecodeParams& p, int step, int lane) {
    const int next = base_ + (16 << log2_stride_);
    if (step < next) return;
    base_ = next;
    pages_ = next_pages_;
    if (table_ != nullptr) next_pages_ = look_up(p, 32 + lane);
  }
  // The page of one of a step's two boxes.
  __device__ __forceinline__ int page(int step, int box) const {
    return __shfl_sync(~0u, pages_, 2 * (step - base_ >> log2_stride_) + box);
  }
  // Whether any query sees keys of the box. Table entries outside may belong to other sequences.
  __device__ __forceinline__ bool has(int box) const { return box >= first_ && box < end_; }

 private:
  // The page of the i-th box from the first in use.
  __device__ int look_up(const Sm90DecodeParams& p, int i) const {
    const int box = 2 * (base_ + (i / 2 << log2_stride_)) + i % 2;
    return has(box) ? table_[box >> p.log2_boxes_per_page] : 0;
  }

  const int32_t* table_;
  int base_, log2_stride_;  // base_: the step whose first page lane 0 holds
  int first_, end_;
  int pages_, next_pages_;
};

template <class Tile>
class StepRing {
 public:
  static constexpr int kDepth = Tile::kDepth;
  static constexpr int kScaleSlot = Sm90DecodeShared<Tile>::kScaleSlot;

  __device__ StepRing(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared, int warp, int lane)
      : p_(p),
        slots_(tile::ptx::shared_address(shared.slots[warp])),
        scales_(tile::ptx::shared_address(shared.scales[warp])),
        full_(tile::ptx::shared_address(shared.full[warp])),
        lane_(lane) {
    init_barriers<false>();
  }

  // Prepares for another run, once everything loaded has been read.
  __device__ void reset() { init_barriers<true>(); }

  // Prefetches the first steps of a run into L2. A page that does not exist is ignored.
  __device__ void prefetch(const KeyRun& run) const {
    if (!tile::ptx::elect_sync()) return;
    const int32_t* table =
        p_.page_table == nullptr ? nullptr : p_.page_table + run.sequence * p_.table_stride;
    const int num_boxes = p_.has_long_boxes ? 1 : 2;  // of a step
#pragma unroll 1
    for (int i = 0; i < num_boxes * p_.early.num_steps; ++i) {
      const int step = run.after(run.steps.begin, i / num_boxes);
      const int box = 2 * step + i % num_boxes;
      if (step >= run.steps.end || box * kBoxKeys >= run.len) return;
      const int page =
          table == nullptr ? run.sequence : __ldcg(&table[box >> p_.log2_boxes_per_page]);
      const tile::ptx::Coord<5> at{{0, kBoxKeys * (box & p_.box_mask), 0, run.kv_head, page}};
      tile::ptx::tensor_prefetch(&p_.k, at);
      tile::ptx::tensor_prefetch(&p_.v, at);
    }
  }

  // Starts to fill the ring with the first slots of a run.
  __device__ void start(const KeyRun& run) {
    run_ = run;
    cursor_.start(p_, run, lane_);
    const uint64_t head = static_cast<uint32_t>(run.kv_head);
    k_scales_ = p_.k_scales.data + head * p_.k_scales.head;
    v_scales_ = p_.v_scales.data + head * p_.v_scales.head;
    slot_ = 0;
    parity_ = 0;
    if constexpr (Tile::kIsJoint) {
#pragma unroll 1
      for (int i = 0; i < kDepth; ++i) load<true, true>(run.after(run.steps.begin, i), i);
    } else {
#pragma unroll 1
      for (int i = 0; i + 1 < kDepth; i += 2) {
        load<true, false>(run.after(run.steps.begin, i / 2), i);
        load<false, true>(run.after(run.steps.begin, i / 2), i + 1);
      }
      if constexpr (kDepth % 2 != 0) {
        load<true, false>(run.after(run.steps.begin, kDepth / 2), kDepth - 1);
      }
    }
  }

  __device__ __forceinline__ void wait_for_keys() const { wait(); }
  __device__ __forceinline__ void wait_for_values() const {
    if constexpr (!Tile::kIsJoint) wait();
  }
  __device__ __forceinline__ uint32_t keys() const { return slots_ + slot_ * Tile::kSlotBytes; }
  __device__ __forceinline__ uint32_t values() const {
    return keys() + (Tile::kIsJoint ? Tile::kHalfBytes : 0);
  }
  __device__ __forceinline__ uint32_t key_scales() const { return scales_ + slot_ * kScaleSlot; }
  __device__ __forceinline__ uint32_t value_scales() const {
    return key_scales() + (Tile::kIsJoint ? Tile::kKeyScaleBytes : 0);
  }

  // Every lane has read the keys (or values) of `step`: their slot is refilled with what comes
  // kDepth slots later.
  __device__ __forceinline__ void release_keys(int step) {
    if constexpr (!Tile::kIsJoint) release<false>(step);
  }
  __device__ __forceinline__ void release_values(int step) { release<true>(step); }

 private:
  template <bool kAreInUse>
  __device__ __forceinline__ void init_barriers() {
    if (lane_ == 0) {
      TESSERA_UNROLL
      for (int i = 0; i < kDepth; ++i) {
        if constexpr (kAreInUse) tile::ptx::mbarrier_inval(full_ + 8 * i);
        tile::ptx::mbarrier_init(full_ + 8 * i, 1);
      }
      tile::ptx::fence_mbarrier_init();
    }
    __syncwarp();
  }

  __device__ __forceinline__ void wait() const {
    tile::ptx::mbarrier_wait(full_ + 8 * slot_, parity_);
  }

  template <bool kAreValues>
  __device__ __forceinline__ void release(int step) {
    __syncwarp();
    if constexpr (Tile::kIsJoint) {
      load<true, true>(run_.after(step, kDepth), slot_);
    } else {
      constexpr int kIndex = kDepth + (kAreValues ? 1 : 0);
      load<kIndex % 2 == 0, kIndex % 2 != 0>(run_.after(step, kIndex / 2), slot_);
    }
    if (++slot_ == kDepth) {
      slot_ = 0;
      parity_ ^= 1;
    }
  }

  // Starts the copies of a step's keys, its values, or both, into a slot.
  template <bool kKeys, bool kValues>
  __device__ __forceinline__ void load(int step, int slot) {
    if (step >= run_.steps.end) return;
    const int first = 2 * step;
    if constexpr (kKeys) cursor_.move_to(p_, step, lane_);
    constexpr int kColumnBytes = kKeys && Tile::K::kHasColumns ? Tile::kKeyScaleBytes : 0;
    constexpr uint32_t kBoxBytes =
        ((kKeys ? 1 : 0) + (kValues ? 1 : 0)) * Tile::kBoxBytes +
        kBoxKeys * 2 * ((kKeys ? Tile::K::kNumScales : 0) + (kValues ? Tile::V::kNumScales : 0));
    const uint32_t barrier = full_ + 8 * slot;
    const int page = cursor_.page(step, 0);
    if constexpr (Tile::kPanels == 1) {
      if (p_.has_long_boxes) {
        if (!tile::ptx::elect_sync()) return;
        tile::ptx::mbarrier_arrive_expect_tx(barrier, 2 * kBoxBytes + kColumnBytes);
        load_boxes<kKeys, kValues, 2 * kBoxKeys>(page, first, slot, 0, barrier);
        if constexpr (kColumnBytes > 0) load_columns(page, first, slot, barrier);
        return;
      }
    }
    const int second_page = cursor_.page(step, 1);
    if (!tile::ptx::elect_sync()) return;
    const bool has_first = cursor_.has(first), has_second = cursor_.has(first + 1);
    tile::ptx::mbarrier_arrive_expect_tx(
        barrier, (has_first && has_second ? 2 * kBoxBytes : kBoxBytes) + kColumnBytes);
    if (has_first) load_boxes<kKeys, kValues, kBoxKeys>(page, first, slot, 0, barrier);
    if (has_second) load_boxes<kKeys, kValues, kBoxKeys>(second_page, first + 1, slot, 1, barrier);
    if constexpr (kColumnBytes > 0) load_columns(page, first, slot, barrier);
  }

  // Copies a box of 16 or 32 rows to half `half` of a slot.
  template <bool kKeys, bool kValues, int kRows>
  __device__ __forceinline__ void load_boxes(int page, int box, int slot, int half,
                                             uint32_t barrier) {
    const tile::ptx::CachePolicy policy = cache_policy();
    const int row = kBoxKeys * (box & p_.box_mask);
    const uint32_t to = slots_ + slot * Tile::kSlotBytes + half * Tile::kBoxBytes;
    const tile::ptx::Coord<5> at{{0, row, 0, run_.kv_head, page}};
    if constexpr (kKeys) {
      tile::ptx::tensor_load(to, &p_.k, at, barrier, policy);
      load_scales<Tile::K::kNumScales, kRows>(k_scales_, p_.k_scales, page, row, slot, 0, half,
                                              barrier, policy);
    }
    if constexpr (kValues) {
      constexpr int kBehindKeys = kKeys ? 1 : 0;
      tile::ptx::tensor_load(to + kBehindKeys * Tile::kHalfBytes, &p_.v, at, barrier, policy);
      load_scales<Tile::V::kNumScales, kRows>(v_scales_, p_.v_scales, page, row, slot,
                                              kBehindKeys * Tile::kKeyScaleBytes, half, barrier,
                                              policy);
    }
  }

  // Instances for scales by column have no register left for the policy.
  __device__ __forceinline__ tile::ptx::CachePolicy cache_policy() const {
    return {Tile::K::kHasColumns ? tile::ptx::kEvictNormal.bits : p_.cache_policy};
  }

  // The scales of kRows rows.
  template <int kNumScales, int kRows>
  __device__ __forceinline__ void load_scales(const char* head, const ScaleParams& scales, int page,
                                              int row, int slot, int behind, int half,
                                              uint32_t barrier, tile::ptx::CachePolicy policy) {
    if constexpr (kNumScales > 0) {
      const char* from = head + static_cast<uint64_t>(static_cast<uint32_t>(page)) * scales.page +
                         static_cast<uint32_t>(row * 2 * kNumScales);
      tile::ptx::bulk_load(scales_ + slot * kScaleSlot + behind + half * kBoxKeys * 2 * kNumScales,
                           from, kRows * 2 * kNumScales, barrier, policy);
    }
  }

  // The scales of a step's columns; a page holds whole steps.
  __device__ __forceinline__ void load_columns(int page, int box, int slot, uint32_t barrier) {
    const char* from =
        k_scales_ + static_cast<uint64_t>(static_cast<uint32_t>(page)) * p_.k_scales.page +
        static_cast<uint64_t>(static_cast<uint32_t>((box & p_.box_mask) / 2)) * p_.k_scales.group;
    tile::ptx::bulk_load(scales_ + slot * kScaleSlot, from, Tile::kKeyScaleBytes, barrier,
                         cache_policy());
  }

  const Sm90DecodeParams& p_;
  uint32_t slots_, scales_, full_;
  int lane_;
  const char *k_scales_, *v_scales_;  // of the run's head
  KeyRun run_;
  PageCursor cursor_;
  int slot_;
  uint32_t parity_;
};

// Starts to copy the newest 32 keys of a sequence, in 16 bits, to shared memory. Only the one warp
// whose run ends with them does so, a row per lane.
template <class Q, class Tile>
__device__ void start_tail(const Sm90DecodeParams& p, Sm90DecodeShared<Tile>& shared,
                           const KeyRun& run, int lane) {
  const int last = (run.len - 1) / kStepKeys;
  const bool has_last = (last - run.steps.begin & (1 << run.steps.log2_stride) - 1) == 0;
  if (run.len == 0 || last < run.steps.begin || last >= run.steps.end || !has_last) return;
  constexpr uint32_t kRowBytes = 2 * Tile::kD;
  const uint32_t barrier = tile::ptx::shared_address(&shared.tail_full);
  if (lane == 0) {
    tile::ptx::mbarrier_init(barrier, 1);
    tile::ptx::fence_mbarrier_init();
  }
  __syncwarp();
  if (lane == 0) tile::ptx::mbarrier_arrive_expect_tx(barrier, kStepKeys * kRowBytes);
  __syncwarp();
  const Q* from = static_cast<const Q*>(p.k_tail.data) +
                  p.k_tail.tails[run.sequence] * p.k_tail.tail + lane * p.k_tail.row +
                  run.kv_head * p.k_tail.head;
  tile::ptx::bulk_load(tile::ptx::shared_address(shared.tail) + lane * Tile::kTailPitch, from,
                       kRowBytes, barrier);
}

}  // namespace tessera::kernels::decode_sm90
