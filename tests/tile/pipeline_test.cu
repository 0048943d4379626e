// Pipeline: a producer warp and a consumer warpgroup over many more rounds than there are stages.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/pipeline.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/ptx/tma.cuh"
#include "tile/ptx/warp.cuh"

namespace tessera::testing {
namespace {

class PipelineTest : public HopperTest {};

constexpr int kConsumers = 128;
constexpr int kThreads = kConsumers + 32;
constexpr uint32_t kStageBytes = kConsumers * sizeof(uint4);

enum class Producer { bulk_copy, cp_async, stores };

struct PipelineParams {
  const uint4* from;  // [num_rounds, kConsumers]
  uint32_t* to;       // [blocks, kConsumers]: each thread's fold of what it read, in order
  int num_rounds;
};

// Depends on the order, so that a stage read too early, too late or twice is seen.
__host__ __device__ constexpr uint32_t fold(uint32_t sum, uint4 value) {
  return ((sum * 31 + value.x) * 31 + value.y) * 31 + (value.z ^ value.w);
}

template <int kStages>
struct alignas(128) RingStorage {
  uint4 stages[kStages][kConsumers];
  tile::PipelineBarriers<kStages> barriers;
};

template <int kStages, Producer kProducer>
__device__ void produce(const PipelineParams& p, RingStorage<kStages>& storage,
                        const tile::Pipeline<kStages>& ring) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  tile::PipelineState<kStages> state;
  for (int round = 0; round < p.num_rounds; ++round, state.advance()) {
    const uint4* from = p.from + round * kConsumers;
    uint4* stage = storage.stages[state.index];
    ring.producer_acquire(state);
    if constexpr (kProducer == Producer::bulk_copy) {
      if (tile::ptx::elect_sync()) {
        ring.producer_expect(state, kStageBytes);
        tile::ptx::bulk_load(tile::ptx::shared_address(stage), from, kStageBytes, ring.full(state));
      }
    } else if constexpr (kProducer == Producer::cp_async) {
      for (int i = lane; i < kConsumers; i += 32) {
        tile::ptx::cp_async<16>(tile::ptx::shared_address(stage + i), from + i);
      }
      tile::ptx::cp_async_mbarrier_arrive(ring.full(state));
    } else {
      for (int i = lane; i < kConsumers; i += 32) stage[i] = from[i];
      ring.producer_commit(state);
    }
    __syncwarp();
  }
}

template <int kStages>
__device__ uint32_t consume(const PipelineParams& p, RingStorage<kStages>& storage,
                            const tile::Pipeline<kStages>& ring) {
  tile::PipelineState<kStages> state;
  uint32_t sum = 0;
  for (int round = 0; round < p.num_rounds; ++round, state.advance()) {
    if (!ring.is_full(state)) ring.consumer_wait(state);
    sum = fold(sum, storage.stages[state.index][threadIdx.x]);
    ring.consumer_release(state);
  }
  return sum;
}

template <int kStages, Producer kProducer>
__global__ void __launch_bounds__(kThreads) ring_sm90_kernel(PipelineParams p) {
  __shared__ RingStorage<kStages> storage;
  tile::Pipeline<kStages> ring(storage.barriers);
  if (threadIdx.x == 0) ring.init(kProducer == Producer::bulk_copy ? 1 : 32, kConsumers);
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    produce<kStages, kProducer>(p, storage, ring);
  } else {
    p.to[threadIdx.x] = consume(p, storage, ring);
  }
}

std::vector<uint4> numbered(int num_rounds) {
  std::vector<uint4> values;
  for (uint32_t i = 0; i < static_cast<uint32_t>(num_rounds * kConsumers); ++i) {
    values.push_back({4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3});
  }
  return values;
}

std::vector<uint32_t> folded(const std::vector<uint4>& values) {
  std::vector<uint32_t> sums(kConsumers, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    sums[i % kConsumers] = fold(sums[i % kConsumers], values[i]);
  }
  return sums;
}

template <int kStages, Producer kProducer>
void expect_in_order() {
  for (const int num_rounds : {1, kStages, 1001}) {
    SCOPED_TRACE(::testing::Message() << kStages << " stages, " << num_rounds << " rounds");
    const std::vector<uint4> values = numbered(num_rounds);
    DeviceArray<uint4> from(values);
    DeviceArray<uint32_t> to(kConsumers);
    kernels::launch(ring_sm90_kernel<kStages, kProducer>,
                    {.grid = dim3(1), .block = dim3(kThreads)},
                    PipelineParams{from.data(), to.data(), num_rounds}, Context{});
    EXPECT_EQ(to.read(), folded(values));
  }
}

TEST_F(PipelineTest, BulkCopiesArriveInOrder) {
  expect_in_order<1, Producer::bulk_copy>();
  expect_in_order<2, Producer::bulk_copy>();
  expect_in_order<3, Producer::bulk_copy>();
  expect_in_order<7, Producer::bulk_copy>();
}

TEST_F(PipelineTest, AsynchronousCopiesOfThreadsArriveInOrder) {
  expect_in_order<3, Producer::cp_async>();
}

TEST_F(PipelineTest, OrdinaryStoresArriveInOrder) { expect_in_order<3, Producer::stores>(); }

constexpr int kClusterStages = 3;

// Each block of the cluster multicasts its share of every stage; a stage is free again when the
// consumers of all blocks have released it in all blocks.
__global__ void __launch_bounds__(kThreads) shared_ring_sm90_kernel(PipelineParams p) {
  __shared__ RingStorage<kClusterStages> storage;
  tile::Pipeline<kClusterStages> ring(storage.barriers);
  tile::PipelineState<kClusterStages> state;
  const uint32_t num_blocks = tile::ptx::cluster_size();
  const uint32_t rank = tile::ptx::cluster_rank();
  if (threadIdx.x == 0) ring.init(1, static_cast<int>(num_blocks));
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  if (threadIdx.x < kConsumers) {
    uint32_t sum = 0;
    for (int round = 0; round < p.num_rounds; ++round, state.advance()) {
      ring.consumer_wait(state);
      sum = fold(sum, storage.stages[state.index][threadIdx.x]);
      tile::ptx::bar_sync(1, kConsumers);
      if (threadIdx.x < num_blocks) ring.consumer_release(state, threadIdx.x);
    }
    p.to[blockIdx.x * kConsumers + threadIdx.x] = sum;
  } else if (threadIdx.x == kConsumers) {
    const uint32_t share = kConsumers / num_blocks;
    const auto mask = static_cast<uint16_t>((1u << num_blocks) - 1);
    for (int round = 0; round < p.num_rounds; ++round, state.advance()) {
      ring.producer_acquire_cluster(state);
      ring.producer_expect(state, kStageBytes);
      tile::ptx::bulk_load_multicast(
          tile::ptx::shared_address(storage.stages[state.index] + rank * share),
          p.from + round * kConsumers + rank * share, share * static_cast<uint32_t>(sizeof(uint4)),
          ring.full(state), mask);
    }
    ring.producer_drain(state);
  }
  // No block may exit while its peer can still write to its shared memory.
  __syncthreads();
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

TEST_F(PipelineTest, BlocksOfAClusterShareTheirStages) {
  for (const unsigned cluster : {2u, 4u}) {
    SCOPED_TRACE(::testing::Message() << "cluster of " << cluster);
    const int num_rounds = 500;
    const std::vector<uint4> values = numbered(num_rounds);
    DeviceArray<uint4> from(values);
    DeviceArray<uint32_t> to(cluster * kConsumers);
    kernels::launch(shared_ring_sm90_kernel,
                    {.grid = dim3(cluster), .block = dim3(kThreads), .cluster = cluster},
                    PipelineParams{from.data(), to.data(), num_rounds}, Context{});
    const std::vector<uint32_t> got = to.read();
    const std::vector<uint32_t> want = folded(values);
    for (unsigned block = 0; block < cluster; ++block) {
      const auto begin = got.begin() + block * kConsumers;
      EXPECT_EQ(std::vector<uint32_t>(begin, begin + kConsumers), want) << "block " << block;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
