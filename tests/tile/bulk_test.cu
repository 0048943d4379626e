// Contiguous bulk copies: global to shared to global, with and without a cache policy.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/tma.cuh"

namespace tessera::testing {
namespace {

class BulkTest : public HopperTest {};

struct BulkParams {
  const uint8_t* from;
  uint8_t* to;
  uint32_t bytes;
};

// One thread moves everything; the second round of the barrier also tests the other parity.
template <bool kHinted>
__global__ void bulk_sm90_kernel(BulkParams p) {
  extern __shared__ __align__(16) uint8_t buffer[];
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const uint32_t address = tile::ptx::shared_address(buffer);
  tile::ptx::mbarrier_init(barrier, 1);
  tile::ptx::fence_mbarrier_init();
  tile::ptx::bulk_prefetch(p.from, p.bytes);
  for (uint32_t round = 0; round < 2; ++round) {
    const uint8_t* from = p.from + round * p.bytes;
    uint8_t* to = p.to + round * p.bytes;
    tile::ptx::mbarrier_arrive_expect_tx(barrier, p.bytes);
    if constexpr (kHinted) {
      tile::ptx::bulk_load(address, from, p.bytes, barrier, tile::ptx::createpolicy_evict_first());
      tile::ptx::mbarrier_wait(barrier, round, 1000);
      tile::ptx::bulk_store(to, address, p.bytes, tile::ptx::createpolicy_evict_first());
    } else {
      tile::ptx::bulk_load(address, from, p.bytes, barrier);
      tile::ptx::mbarrier_wait(barrier, round);
      tile::ptx::bulk_store(to, address, p.bytes);
    }
    tile::ptx::bulk_commit_group();
    tile::ptx::bulk_wait_group_read<0>();
  }
  tile::ptx::bulk_wait_group<0>();
}

template <bool kHinted>
void expect_round_trip(uint32_t bytes) {
  SCOPED_TRACE(::testing::Message() << bytes << " bytes");
  std::vector<uint8_t> values(2 * bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint8_t>(i * 7 + i / 251);
  DeviceArray<uint8_t> from(values);
  DeviceArray<uint8_t> to(values.size());
  kernels::launch(bulk_sm90_kernel<kHinted>,
                  {.grid = dim3(1), .block = dim3(1), .shared_bytes = bytes},
                  BulkParams{from.data(), to.data(), bytes}, Context{});
  EXPECT_TRUE(to.read() == values);
}

TEST_F(BulkTest, BytesSurviveTheRoundTrip) {
  for (const uint32_t bytes : {16u, 48u, 4096u, 49152u, 196608u}) expect_round_trip<false>(bytes);
}

TEST_F(BulkTest, BytesSurviveTheRoundTripUnderACachePolicy) {
  for (const uint32_t bytes : {16u, 4096u, 65536u}) expect_round_trip<true>(bytes);
}

}  // namespace
}  // namespace tessera::testing
