// Multicast loads: each block of a cluster fetches its share, and all blocks receive all of it.
// SPDX-License-Identifier: MIT
#include <numeric>

#include "tests/tile/tensor_copy.cuh"
#include "tile/ptx/cluster.cuh"

namespace tessera::testing {
namespace {

class MulticastTest : public HopperTest {};

constexpr int kWidth = 64;  // elements of 16 bits: one row of the 128-byte swizzle
constexpr int kRows = 64;
constexpr uint32_t kTileBytes = kWidth * kRows * 2;

enum class Way { bulk, tensor, tensor_hinted };

struct MulticastParams {
  CUtensorMap map;       // [kRows, kWidth], a box of kRows / cluster rows
  const uint16_t* from;  // the same tensor
  uint16_t* to;          // [blocks, kRows, kWidth]: each block's shared memory
};

template <Way kWay>
__global__ void multicast_sm90_kernel(const __grid_constant__ MulticastParams p) {
  __shared__ __align__(1024) uint16_t tile_data[kWidth * kRows];
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const uint32_t num_blocks = tile::ptx::cluster_size();
  const uint32_t rank = tile::ptx::cluster_rank();
  if (threadIdx.x == 0) {
    tile::ptx::mbarrier_init(barrier, 1);
    tile::ptx::fence_mbarrier_init();
  }
  tile::ptx::cluster_arrive();
  tile::ptx::cluster_wait();
  if (threadIdx.x == 0) {
    const uint32_t share = kTileBytes / num_blocks;
    const int first_row = static_cast<int>(rank * kRows / num_blocks);
    const auto mask = static_cast<uint16_t>((1u << num_blocks) - 1);
    const uint32_t to = tile::ptx::shared_address(tile_data) + rank * share;
    tile::ptx::mbarrier_arrive_expect_tx(barrier, kTileBytes);
    if constexpr (kWay == Way::bulk) {
      tile::ptx::bulk_load_multicast(to, p.from + first_row * kWidth, share, barrier, mask);
    } else if constexpr (kWay == Way::tensor) {
      tile::ptx::tensor_load_multicast(to, &p.map, Coord{0, first_row}, barrier, mask);
    } else {
      tile::ptx::tensor_load_multicast(to, &p.map, Coord{0, first_row}, barrier, mask,
                                       tile::ptx::createpolicy_evict_last());
    }
  }
  tile::ptx::mbarrier_wait(barrier, 0);
  uint16_t* to = p.to + static_cast<size_t>(blockIdx.x) * kWidth * kRows;
  for (int i = static_cast<int>(threadIdx.x); i < kWidth * kRows; i += 128) to[i] = tile_data[i];
  tile::ptx::cluster_arrive_relaxed();
  tile::ptx::cluster_wait();
}

template <Way kWay>
void expect_everywhere(int cluster) {
  SCOPED_TRACE(::testing::Message() << "cluster of " << cluster);
  std::vector<uint16_t> values(kWidth * kRows);
  std::iota(values.begin(), values.end(), uint16_t{1});
  DeviceArray<uint16_t> from(values);
  const int num_blocks = 2 * cluster;  // two clusters
  DeviceArray<uint16_t> to(static_cast<size_t>(num_blocks) * values.size());
  TensorMapSpec spec = dense_spec<2>(DType::bf16, {kWidth, kRows}, {kWidth, kRows / cluster});
  spec.swizzle = Swizzle::b128;
  spec.data = from.data();
  const MulticastParams params{tile::make_tensor_map(spec), from.data(), to.data()};
  kernels::launch(multicast_sm90_kernel<kWay>,
                  {.grid = dim3(static_cast<unsigned>(num_blocks)),
                   .block = dim3(128),
                   .cluster = static_cast<unsigned>(cluster)},
                  params, Context{});
  const std::vector<uint16_t> got = to.read();
  const Swizzle swizzle = kWay == Way::bulk ? Swizzle::none : Swizzle::b128;
  for (int block = 0; block < num_blocks; ++block) {
    int num_wrong = 0;
    for (uint32_t i = 0; i < values.size(); ++i) {
      const uint32_t place = tile::swizzled(swizzle, 2 * i) / 2;
      num_wrong += got[static_cast<size_t>(block) * values.size() + place] != values[i];
    }
    EXPECT_EQ(num_wrong, 0) << "of " << values.size() << " elements in block " << block;
  }
}

TEST_F(MulticastTest, BulkLoadsReachEveryBlock) {
  expect_everywhere<Way::bulk>(2);
  expect_everywhere<Way::bulk>(4);
}

TEST_F(MulticastTest, TensorLoadsReachEveryBlock) {
  expect_everywhere<Way::tensor>(2);
  expect_everywhere<Way::tensor>(4);
}

TEST_F(MulticastTest, TensorLoadsUnderACachePolicyReachEveryBlock) {
  expect_everywhere<Way::tensor_hinted>(2);
  expect_everywhere<Way::tensor_hinted>(4);
}

}  // namespace
}  // namespace tessera::testing
