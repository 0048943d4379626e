// Clusters: ranks, arrivals on a peer's barrier, and reads, writes and copies into its memory.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/ptx/cluster.cuh"
#include "tile/ptx/tma.cuh"

namespace tessera::testing {
namespace {

class ClusterTest : public HopperTest {};

constexpr uint32_t kMostBlocks = 8;

struct ClusterParams {
  uint32_t* to;  // [blocks, kMostBlocks]
};

// Every block leaves 100 * its rank + the reader's rank in each peer by an ordinary remote store,
// and arrives on the peer's barrier; a block's barrier completes when all have.
__global__ void remote_arrive_sm90_kernel(ClusterParams p) {
  __shared__ uint32_t slots[kMostBlocks];
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const uint32_t rank = tile::ptx::cluster_rank();
  const uint32_t num_blocks = tile::ptx::cluster_size();
  if (threadIdx.x == 0) {
    tile::ptx::mbarrier_init(barrier, num_blocks);
    tile::ptx::fence_mbarrier_init();
  }
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  if (threadIdx.x < num_blocks) {
    const uint32_t peer = threadIdx.x;
    const uint32_t slot = tile::ptx::shared_address(slots + rank);
    tile::ptx::store_cluster(tile::ptx::mapa(slot, peer), 100 * rank + peer);
    tile::ptx::mbarrier_arrive_cluster(tile::ptx::mapa(barrier, peer));
  }
  tile::ptx::mbarrier_wait_cluster(barrier, 0);
  if (threadIdx.x < num_blocks) p.to[blockIdx.x * kMostBlocks + threadIdx.x] = slots[threadIdx.x];
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

TEST_F(ClusterTest, ArrivalsOnAPeersBarrierReleaseTheWritesBeforeThem) {
  for (const uint32_t cluster : {1u, 2u, 4u, 8u}) {
    SCOPED_TRACE(::testing::Message() << "cluster of " << cluster);
    DeviceArray<uint32_t> to(2 * cluster * kMostBlocks);
    kernels::launch(remote_arrive_sm90_kernel,
                    {.grid = dim3(2 * cluster), .block = dim3(32), .cluster = cluster},
                    ClusterParams{to.data()}, Context{});
    const std::vector<uint32_t> got = to.read();
    for (uint32_t block = 0; block < 2 * cluster; ++block) {
      for (uint32_t from = 0; from < cluster; ++from) {
        EXPECT_EQ(got[block * kMostBlocks + from], 100 * from + block % cluster)
            << "block " << block << ", written by rank " << from;
      }
    }
  }
}

struct NeighbourParams {
  uint32_t* read;    // [blocks, 4]: the neighbour's words, by remote loads
  uint32_t* stored;  // [blocks, 4]: the neighbour's words, by its st.async
  uint32_t* copied;  // [blocks, 4]: the neighbour's words, by its bulk copy
};

// Each block holds four words of its own and hands them to the next rank in three ways.
__global__ void neighbour_sm90_kernel(NeighbourParams p) {
  __shared__ __align__(16) uint32_t own[4];
  __shared__ __align__(16) uint32_t stored[4];
  __shared__ __align__(16) uint32_t copied[4];
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const uint32_t num_blocks = tile::ptx::cluster_size();
  const uint32_t next = (tile::ptx::cluster_rank() + 1) % num_blocks;
  const uint32_t previous = (tile::ptx::cluster_rank() + num_blocks - 1) % num_blocks;
  if (threadIdx.x < 4) own[threadIdx.x] = 1000 * blockIdx.x + threadIdx.x;
  if (threadIdx.x == 0) {
    tile::ptx::mbarrier_init(barrier, 1);
    tile::ptx::fence_mbarrier_init();
    tile::ptx::mbarrier_arrive_expect_tx(barrier, sizeof(stored) + sizeof(copied));
  }
  tile::ptx::fence_proxy_async_shared();
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  if (threadIdx.x == 0) {
    const uint32_t peer_barrier = tile::ptx::mapa(barrier, next);
    tile::ptx::store_async_cluster(tile::ptx::mapa(tile::ptx::shared_address(stored), next),
                                   make_uint4(own[0], own[1], own[2], own[3]), peer_barrier);
    tile::ptx::bulk_copy_to_peer(tile::ptx::mapa(tile::ptx::shared_address(copied), next),
                                 tile::ptx::shared_address(own), sizeof(own), peer_barrier);
  }
  tile::ptx::mbarrier_wait_cluster(barrier, 0);
  if (threadIdx.x < 4) {
    const uint32_t i = blockIdx.x * 4 + threadIdx.x;
    const uint32_t address = tile::ptx::shared_address(own + threadIdx.x);
    p.read[i] = tile::ptx::load_cluster(tile::ptx::mapa(address, previous));
    p.stored[i] = stored[threadIdx.x];
    p.copied[i] = copied[threadIdx.x];
  }
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
}

TEST_F(ClusterTest, MemoryOfANeighbourIsReadStoredAndCopied) {
  constexpr uint32_t kBlocks = 4;
  DeviceArray<uint32_t> read(4 * kBlocks), stored(4 * kBlocks), copied(4 * kBlocks);
  kernels::launch(neighbour_sm90_kernel,
                  {.grid = dim3(kBlocks), .block = dim3(32), .cluster = kBlocks},
                  NeighbourParams{read.data(), stored.data(), copied.data()}, Context{});
  std::vector<uint32_t> want;
  for (uint32_t i = 0; i < 4 * kBlocks; ++i) {
    want.push_back(1000 * ((i / 4 + kBlocks - 1) % kBlocks) + i % 4);
  }
  EXPECT_EQ(read.read(), want);
  EXPECT_EQ(stored.read(), want);
  EXPECT_EQ(copied.read(), want);
}

}  // namespace
}  // namespace tessera::testing
