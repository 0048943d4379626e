// Named barriers: two warps hand values to two others, round after round.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/ptx/barrier.cuh"

namespace tessera::testing {
namespace {

class BarrierTest : public GpuTest {};

constexpr int kHalf = 64;
constexpr int kRounds = 200;
constexpr int kFilled = 1;   // announced by the writers, awaited by the readers
constexpr int kEmptied = 2;  // the reverse

struct BarrierParams {
  uint32_t* to;  // [kHalf]
};

__host__ __device__ constexpr uint32_t value_of(int round, int idx) {
  return static_cast<uint32_t>(round * 1000 + idx);
}

__global__ void handover_kernel(BarrierParams p) {
  __shared__ uint32_t slots[kHalf];
  const int idx = static_cast<int>(threadIdx.x) % kHalf;
  if (threadIdx.x < kHalf) {
    for (int round = 0; round < kRounds; ++round) {
      if (round > 0) tile::ptx::bar_sync(kEmptied, 2 * kHalf);
      slots[idx] = value_of(round, idx);
      tile::ptx::bar_arrive(kFilled, 2 * kHalf);
    }
  } else {
    uint32_t sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      tile::ptx::bar_sync(kFilled, 2 * kHalf);
      sum = sum * 31 + slots[kHalf - 1 - idx];
      if (round + 1 < kRounds) tile::ptx::bar_arrive(kEmptied, 2 * kHalf);
    }
    p.to[idx] = sum;
  }
}

TEST_F(BarrierTest, ReadersSeeEveryRoundOfTheWriters) {
  DeviceArray<uint32_t> to(kHalf);
  kernels::launch(handover_kernel, {.grid = dim3(1), .block = dim3(2 * kHalf)},
                  BarrierParams{to.data()}, Context{});
  std::vector<uint32_t> want(kHalf, 0);
  for (int idx = 0; idx < kHalf; ++idx) {
    for (int round = 0; round < kRounds; ++round) {
      uint32_t& sum = want[static_cast<size_t>(idx)];
      sum = sum * 31 + value_of(round, kHalf - 1 - idx);
    }
  }
  EXPECT_EQ(to.read(), want);
}

}  // namespace
}  // namespace tessera::testing
