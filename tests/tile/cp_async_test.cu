// cp.async: a ring of stages filled by threads, with zeros behind the end of the source.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/ptx/address.cuh"
#include "tile/ptx/cp_async.cuh"
#include "tile/unroll.cuh"

namespace tessera::testing {
namespace {

class CpAsyncTest : public GpuTest {};

constexpr int kCopyThreads = 128;
constexpr int kStages = 3;

struct CpAsyncParams {
  const uint8_t* from;  // [from_bytes]
  uint8_t* to;          // [num_tiles, kCopyThreads, kBytes]
  int from_bytes;
  int num_tiles;
};

template <int kBytes>
__device__ void fetch(const CpAsyncParams& p, int tile_idx, uint8_t* stage) {
  const int in_tile = static_cast<int>(threadIdx.x) * kBytes;
  const int offset = tile_idx * kCopyThreads * kBytes + in_tile;
  const int left = p.from_bytes - offset;
  const int source_bytes = left < 0 ? 0 : left < kBytes ? left : kBytes;
  tile::ptx::cp_async<kBytes>(tile::ptx::shared_address(stage + in_tile),
                              p.from + (source_bytes > 0 ? offset : 0),
                              static_cast<uint32_t>(source_bytes));
}

// Thread t writes what thread 127 - t fetched, so that the block barrier matters too.
template <int kBytes>
__global__ void cp_async_kernel(CpAsyncParams p) {
  __shared__ __align__(16) uint8_t ring[kStages][kCopyThreads * kBytes];
  TESSERA_UNROLL
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < p.num_tiles) fetch<kBytes>(p, i, ring[i]);
    tile::ptx::cp_async_commit_group();
  }
  for (int i = 0; i < p.num_tiles; ++i) {
    tile::ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    const int next = i + kStages - 1;
    if (next < p.num_tiles) fetch<kBytes>(p, next, ring[next % kStages]);
    tile::ptx::cp_async_commit_group();
    const int in_tile = (kCopyThreads - 1 - static_cast<int>(threadIdx.x)) * kBytes;
    for (int b = 0; b < kBytes; ++b) {
      p.to[i * kCopyThreads * kBytes + in_tile + b] = ring[i % kStages][in_tile + b];
    }
  }
}

template <int kBytes>
void expect_zero_filled() {
  constexpr int kNumTiles = 9;
  const int tile_bytes = kCopyThreads * kBytes;
  for (const int from_bytes : {kNumTiles * tile_bytes, 7 * tile_bytes + 5 * kBytes + 3, 2}) {
    SCOPED_TRACE(::testing::Message() << from_bytes << " bytes by " << kBytes);
    std::vector<uint8_t> want(static_cast<size_t>(kNumTiles * tile_bytes), 0);
    for (int i = 0; i < from_bytes; ++i)
      want[static_cast<size_t>(i)] = static_cast<uint8_t>(i % 251 + 1);
    // Data behind the end, which would show if it were copied. The memory must exist, because a
    // copy accesses its full width.
    std::vector<uint8_t> source(want.begin(), want.begin() + from_bytes);
    source.resize(source.size() + 16, 0xff);
    DeviceArray<uint8_t> from(source);
    DeviceArray<uint8_t> to(want.size());
    kernels::launch(cp_async_kernel<kBytes>, {.grid = dim3(1), .block = dim3(kCopyThreads)},
                    CpAsyncParams{from.data(), to.data(), from_bytes, kNumTiles}, Context{});
    EXPECT_TRUE(to.read() == want);
  }
}

TEST_F(CpAsyncTest, FourByteCopiesFillTheRestWithZeros) { expect_zero_filled<4>(); }
TEST_F(CpAsyncTest, EightByteCopiesFillTheRestWithZeros) { expect_zero_filled<8>(); }
TEST_F(CpAsyncTest, SixteenByteCopiesFillTheRestWithZeros) { expect_zero_filled<16>(); }

}  // namespace
}  // namespace tessera::testing
