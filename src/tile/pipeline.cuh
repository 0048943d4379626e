// A ring of shared-memory stages between producers and consumers, synchronised by mbarriers.
// SPDX-License-Identifier: MIT
//
//   producer                                    consumer
//     pipe.producer_acquire(state);               pipe.consumer_wait(state);
//     pipe.producer_expect(state, bytes);         ... read stage state.index ...
//     tensor_load(..., pipe.full(state));         pipe.consumer_release(state);
//     state.advance();                            state.advance();
#pragma once

#include <cstdint>

#include "tile/ptx/mbarrier.cuh"
#include "tile/unroll.cuh"

namespace tessera::tile {

// One side's position in the ring. Both sides start from the default and advance once per stage. A
// ring may use fewer stages than it has barriers for; every advance must then name that number.
template <int kStages>
struct PipelineState {
  int index = 0;
  uint32_t phase = 0;

  constexpr void advance(int num_stages = kStages) {
    if (++index == num_stages) {
      index = 0;
      phase ^= 1;
    }
  }
};

// The barriers of a ring; a member of the kernel's SharedStorage.
template <int kStages>
struct PipelineBarriers {
  alignas(8) uint64_t full[kStages];
  alignas(8) uint64_t empty[kStages];
};

template <int kStages>
class Pipeline {
 public:
  using Barriers = PipelineBarriers<kStages>;
  using State = PipelineState<kStages>;

  __device__ explicit Pipeline(Barriers& barriers)
      : full_(ptx::shared_address(barriers.full)), empty_(ptx::shared_address(barriers.empty)) {}

  // One thread of the block. The counts are arrivals per stage: producer_expect and producer_commit
  // are one each, and so is consumer_release; in a cluster that shares stages, count every block's
  // consumers. A block barrier (a cluster barrier, in a cluster) follows before anyone uses it.
  __device__ void init(int num_producer_arrivals, int num_consumer_arrivals) {
    TESSERA_UNROLL
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(full_ + 8 * i, static_cast<uint32_t>(num_producer_arrivals));
      ptx::mbarrier_init(empty_ + 8 * i, static_cast<uint32_t>(num_consumer_arrivals));
    }
    ptx::fence_mbarrier_init();
  }

  // The same by one warp, one stage per lane, for the first num_stages: a single thread takes
  // hundreds of cycles for many stages.
  __device__ void init_by_warp(int num_producer_arrivals, int num_consumer_arrivals,
                               int num_stages) {
    static_assert(kStages <= 32);
    const int i = static_cast<int>(threadIdx.x) % 32;
    if (i >= num_stages) return;
    ptx::mbarrier_init(full_ + 8 * i, static_cast<uint32_t>(num_producer_arrivals));
    ptx::mbarrier_init(empty_ + 8 * i, static_cast<uint32_t>(num_consumer_arrivals));
    ptx::fence_mbarrier_init();
  }

  // Waits until the stage is free; the first round finds every stage free.
  __device__ void producer_acquire(const State& state) const {
    ptx::mbarrier_wait(empty(state), state.phase ^ 1);
  }
  // The same if other blocks of the cluster release the stage.
  __device__ void producer_acquire_cluster(const State& state) const {
    ptx::mbarrier_wait_cluster(empty(state), state.phase ^ 1);
  }

  // Whether producer_acquire would return at once.
  __device__ bool is_free(const State& state) const {
    return ptx::mbarrier_test_wait(empty(state), state.phase ^ 1);
  }

  // Arrives, and announces that copies on full(state) will bring `bytes`. Call before the copies.
  __device__ void producer_expect(const State& state, uint32_t bytes) const {
    ptx::mbarrier_arrive_expect_tx(full(state), bytes);
  }
  // Arrives for a producer that writes by ordinary stores. Call after the stores, and, if the
  // tensor cores or TMA read the stage, after fence_proxy_async_shared.
  __device__ void producer_commit(const State& state) const { ptx::mbarrier_arrive(full(state)); }

  // The barrier on which copies into the stage report their bytes.
  __device__ uint32_t full(const State& state) const { return full_ + 8 * state.index; }
  __device__ uint32_t empty(const State& state) const { return empty_ + 8 * state.index; }

  // Whether consumer_wait would return at once.
  __device__ bool is_full(const State& state) const {
    return ptx::mbarrier_test_wait(full(state), state.phase);
  }
  __device__ void consumer_wait(const State& state) const {
    ptx::mbarrier_wait(full(state), state.phase);
  }
  // Arrives once. Called by one thread of a warp or warpgroup, or by each thread, as counted in
  // init.
  __device__ void consumer_release(const State& state) const { ptx::mbarrier_arrive(empty(state)); }
  // The same on the ring of the block of rank `rank`, whose copies also filled this block's stage.
  __device__ void consumer_release(const State& state, uint32_t rank) const {
    ptx::mbarrier_arrive_cluster(ptx::mapa(empty(state), rank));
  }

  // The same without a fence, for a stage that only the tensor cores have read. Its producer fills
  // it by TMA alone and may wait with producer_acquire.
  __device__ void consumer_release_relaxed(const State& state, uint32_t rank) const {
    ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(empty(state), rank));
  }

  // Waits until consumers have released every stage acquired so far. In a cluster a producer calls
  // it last, so that no block exits while another may still arrive on its barriers.
  __device__ void producer_drain(State state, int num_stages = kStages) const {
    for (int i = 0; i < num_stages; ++i) {
      producer_acquire_cluster(state);
      state.advance(num_stages);
    }
  }

 private:
  uint32_t full_;
  uint32_t empty_;
};

}  // namespace tessera::tile
