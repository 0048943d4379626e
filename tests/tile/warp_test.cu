// setmaxnreg in a kernel whose consumers need the registers, and elect.sync.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/warp.cuh"
#include "tile/unroll.cuh"

namespace tessera::testing {
namespace {

class WarpTest : public HopperTest {};

constexpr int kRoleConsumers = 256;
constexpr int kRoleThreads = kRoleConsumers + 128;
constexpr int kValues = 200;  // live at once in a consumer: more than the 168 registers at entry

struct RegistersParams {
  const float* from;  // [kValues, kRoleConsumers]
  float* to;          // [kValues, kRoleConsumers]
  float* flag;        // [1]: written by the producer warpgroup
};

__global__ void __launch_bounds__(kRoleThreads, 1) registers_sm90_kernel(RegistersParams p) {
  if (threadIdx.x >= kRoleConsumers) {
    tile::ptx::setmaxnreg_dec<24>();
    if (threadIdx.x == kRoleConsumers) *p.flag = 1;
  } else {
    tile::ptx::setmaxnreg_inc<240>();
    float values[kValues];
    TESSERA_UNROLL
    for (int i = 0; i < kValues; ++i) values[i] = p.from[i * kRoleConsumers + threadIdx.x];
    tile::ptx::bar_sync(1, kRoleConsumers);  // nothing is stored before everything is loaded
    TESSERA_UNROLL
    for (int i = 0; i < kValues; ++i) {
      p.to[i * kRoleConsumers + threadIdx.x] = values[i] + 2 * values[kValues - 1 - i];
    }
  }
}

TEST_F(WarpTest, RegistersMoveFromProducersToConsumers) {
  std::vector<float> values(kValues * kRoleConsumers);
  std::iota(values.begin(), values.end(), 1.0f);
  DeviceArray<float> from(values);
  DeviceArray<float> to(values.size());
  DeviceArray<float> flag(1);
  kernels::launch(registers_sm90_kernel, {.grid = dim3(1), .block = dim3(kRoleThreads)},
                  RegistersParams{from.data(), to.data(), flag.data()}, Context{});
  std::vector<float> want(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t mirrored =
        (kValues - 1 - i / kRoleConsumers) * kRoleConsumers + i % kRoleConsumers;
    want[i] = values[i] + 2 * values[mirrored];
  }
  EXPECT_EQ(to.read(), want);
  EXPECT_EQ(flag.read()[0], 1);
}

struct ElectParams {
  int* counts;  // [warps]
};

__global__ void elect_sm90_kernel(ElectParams p) {
  const bool is_elected = tile::ptx::elect_sync();
  const int count = __popc(__ballot_sync(0xffffffff, is_elected));
  if (is_elected) p.counts[threadIdx.x / 32] = count;
}

TEST_F(WarpTest, OneLaneOfEachWarpIsElected) {
  DeviceArray<int> counts(4);
  kernels::launch(elect_sm90_kernel, {.grid = dim3(1), .block = dim3(128)},
                  ElectParams{counts.data()}, Context{});
  EXPECT_EQ(counts.read(), std::vector<int>(4, 1));
}

}  // namespace
}  // namespace tessera::testing
