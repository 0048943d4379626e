// stmatrix in its six forms, read back by ldmatrix and by ordinary loads.
// SPDX-License-Identifier: MIT
#include "tests/tile/mma_case.cuh"
#include "tile/ptx/stmatrix.cuh"

namespace tessera::testing {
namespace {

class StmatrixTest : public HopperTest {};

struct StmatrixParams {
  uint16_t* stored;    // [kTiles, 8, 8]: what the store left in shared memory
  uint32_t* reloaded;  // [32, kTiles]: the same through ldmatrix of the same kind
};

// Before the store, element i of lane l of tile t is 64 t + 2 l + i: its place in row-major order.
template <int kTiles, bool kTrans>
__global__ void stmatrix_sm90_kernel(StmatrixParams p) {
  __shared__ __align__(16) uint16_t tiles[kTiles * 64];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kTiles * 64; i += 32) tiles[i] = 0xffff;
  __syncwarp();
  uint32_t values[kTiles];
  TESSERA_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    const uint32_t first = static_cast<uint32_t>(64 * t + 2 * lane);
    values[t] = first | (first + 1) << 16;
  }
  const uint32_t row = tile::ptx::shared_address(tiles + 8 * (lane % (8 * kTiles)));
  uint32_t reloaded[kTiles];
  if constexpr (kTrans) {
    tile::ptx::stmatrix_trans(row, values);
    __syncwarp();
    tile::ptx::ldmatrix_trans(reloaded, row);
  } else {
    tile::ptx::stmatrix(row, values);
    __syncwarp();
    tile::ptx::ldmatrix(reloaded, row);
  }
  for (int i = lane; i < kTiles * 64; i += 32) p.stored[i] = tiles[i];
  TESSERA_UNROLL
  for (int t = 0; t < kTiles; ++t) p.reloaded[lane * kTiles + t] = reloaded[t];
}

template <int kTiles, bool kTrans>
void expect_stored() {
  SCOPED_TRACE(::testing::Message() << "x" << kTiles << (kTrans ? ".trans" : ""));
  DeviceArray<uint16_t> stored(kTiles * 64);
  DeviceArray<uint32_t> reloaded(32 * kTiles);
  kernels::launch(stmatrix_sm90_kernel<kTiles, kTrans>, {.grid = dim3(1), .block = dim3(32)},
                  StmatrixParams{stored.data(), reloaded.data()}, Context{});
  const std::vector<uint16_t> in_memory = stored.read();
  for (int i = 0; i < kTiles * 64; ++i) {
    const int row = i % 64 / 8;
    const int col = i % 8;
    const int want = i / 64 * 64 + (kTrans ? 8 * col + row : 8 * row + col);
    EXPECT_EQ(in_memory[static_cast<size_t>(i)], want) << "element " << i;
  }
  const std::vector<uint32_t> in_registers = reloaded.read();
  for (int lane = 0; lane < 32; ++lane) {
    for (int t = 0; t < kTiles; ++t) {
      const uint32_t first = static_cast<uint32_t>(64 * t + 2 * lane);
      EXPECT_EQ(in_registers[static_cast<size_t>(lane * kTiles + t)], first | (first + 1) << 16);
    }
  }
}

TEST_F(StmatrixTest, TilesLandRowByRow) {
  expect_stored<1, false>();
  expect_stored<2, false>();
  expect_stored<4, false>();
}

TEST_F(StmatrixTest, TransposedTilesLandColumnByColumn) {
  expect_stored<1, true>();
  expect_stored<2, true>();
  expect_stored<4, true>();
}

}  // namespace
}  // namespace tessera::testing
