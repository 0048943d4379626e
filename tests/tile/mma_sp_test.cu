// mma.sp against the exact product: which lanes and bits of the metadata it reads.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tests/tile/matrices.h"
#include "tile/fragment.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma_sp.cuh"
#include "tile/unroll.cuh"

namespace tessera::testing {
namespace {

class MmaSpTest : public GpuTest {};

template <class T>
struct MmaSpParams {
  const T* a;            // [16, 16]: the kept elements
  const T* b;            // [8, 32]
  const uint32_t* meta;  // [32], a word a lane
  float* d;              // [16, 8]
};

template <class T, int kSelector>
__global__ void mma_sp_kernel(MmaSpParams<T> p) {
  __shared__ __align__(16) T a_rows[16 * 16];
  __shared__ __align__(16) T b_rows[8 * 32];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 16; i += 32) a_rows[i] = p.a[i];
  for (int i = lane; i < 8 * 32; i += 32) b_rows[i] = p.b[i];
  __syncwarp();
  const tile::MatrixRow at = tile::matrix_row_16x32(lane);
  uint32_t a[4];
  uint32_t b[4];
  tile::ptx::ldmatrix(a, tile::ptx::shared_address(a_rows) + at.row * 32 + at.byte);
  tile::ptx::ldmatrix(b, tile::ptx::shared_address(b_rows) + lane % 8 * 64 + lane / 8 * 16);
  float d[4] = {};
  tile::ptx::mma_sp<T, kSelector>(d, a, b, p.meta[lane]);
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const tile::TileCoord to = tile::mma_accumulator_coord(lane, i);
    p.d[to.row * 8 + to.col] = d[i];
  }
}

// The two lanes of four that are not read hold meta that would give another result.
template <class T, int kSelector>
void expect_exact() {
  constexpr int kPairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  const IntMatrix kept = random_matrix(16, 16, 4, 1);
  const IntMatrix choice = random_matrix(16, 8, 100, 2);
  const IntMatrix b = random_matrix(8, 32, 4, 3);
  IntMatrix dense{16, 32, std::vector<int>(16 * 32, 0)};
  std::vector<uint32_t> meta(32, 0xeeeeeeeeu);
  for (int row = 0; row < 16; ++row) {
    for (int q = 0; q < 2; ++q)
      meta[static_cast<size_t>(4 * (row % 8) + 2 * kSelector + q)] &=
          row < 8 ? 0xffff0000u : 0x0000ffffu;
  }
  for (int row = 0; row < 16; ++row) {
    for (int four = 0; four < 8; ++four) {
      const int* pair = kPairs[(choice.at(row, four) + 100) % 6];
      for (int i = 0; i < 2; ++i) {
        dense.values[static_cast<size_t>(row * 32 + 4 * four + pair[i])] =
            kept.at(row, 2 * four + i);
        const int bit = four % 4 * 4 + 2 * i + (row < 8 ? 0 : 16);
        meta[static_cast<size_t>(4 * (row % 8) + 2 * kSelector + four / 4)] |=
            static_cast<uint32_t>(pair[i]) << bit;
      }
    }
  }
  DeviceArray<T> a_device(store_as<T>(kept)), b_device(store_as<T>(b));
  DeviceArray<uint32_t> meta_device(meta);
  DeviceArray<float> d_device(16 * 8);
  const MmaSpParams<T> params{a_device.data(), b_device.data(), meta_device.data(),
                              d_device.data()};
  kernels::launch(mma_sp_kernel<T, kSelector>, {.grid = dim3(1), .block = dim3(32)}, params,
                  Context{});
  EXPECT_EQ(difference(d_device.read(), product(dense, b)), "");
}

TEST_F(MmaSpTest, Bf16IsExactWithMetaInTheFirstTwoLanes) { expect_exact<Bf16, 0>(); }
TEST_F(MmaSpTest, Bf16IsExactWithMetaInTheLastTwoLanes) { expect_exact<Bf16, 1>(); }
TEST_F(MmaSpTest, F16IsExactWithMetaInTheFirstTwoLanes) { expect_exact<F16, 0>(); }
TEST_F(MmaSpTest, F16IsExactWithMetaInTheLastTwoLanes) { expect_exact<F16, 1>(); }

}  // namespace
}  // namespace tessera::testing
