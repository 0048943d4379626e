// Programmatic dependent launch: a kernel that starts early still sees what the one before it
// wrote.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/arch.cuh"

namespace tessera::testing {
namespace {

class DependentLaunchTest : public HopperTest {};

constexpr int kBlocks = 64;
constexpr int kGridThreads = 128;

struct StepParams {
  const int* from;  // [kBlocks * kGridThreads]
  int* to;          // [kBlocks * kGridThreads]
};

// to = from + 1, each element taken from another block than the one that wrote it. The next kernel
// may start at once; this one then delays its stores, so that a reader that did not wait would see
// old values.
__global__ void step_sm90_kernel(StepParams p) {
  tile::wait_for_previous(Sm90{});
  tile::release_next(Sm90{});
  const int size = kBlocks * kGridThreads;
  const int idx = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int value = p.from[(idx + size / 2) % size];
  for (int i = 0; i < 20; ++i) __nanosleep(500);
  p.to[idx] = value + 1;
}

TEST_F(DependentLaunchTest, EachKernelSeesTheWritesOfTheOneBefore) {
  constexpr int kSteps = 50;
  std::vector<int> values(kBlocks * kGridThreads, 0);
  DeviceArray<int> even(values), odd(values);
  const kernels::LaunchShape shape{.grid = dim3(kBlocks),
                                   .block = dim3(kGridThreads),
                                   .overlaps_previous = kernels::kOverlaps<Sm90>};
  for (int step = 0; step < kSteps; ++step) {
    const bool is_even = step % 2 == 0;
    const StepParams params{is_even ? even.data() : odd.data(), is_even ? odd.data() : even.data()};
    kernels::launch(step_sm90_kernel, shape, params, Context{});
  }
  EXPECT_EQ(even.read(), std::vector<int>(values.size(), kSteps));
  EXPECT_EQ(odd.read(), std::vector<int>(values.size(), kSteps - 1));
}

}  // namespace
}  // namespace tessera::testing
