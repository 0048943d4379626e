// ldmatrix in its six forms: which element each lane receives, and a product from a transposed B.
// SPDX-License-Identifier: MIT
#include "tests/tile/mma_case.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::testing {
namespace {

class LdmatrixTest : public GpuTest {};

constexpr int kMostTiles = 4;

struct LdmatrixParams {
  uint32_t* out;  // [32, kTiles]
};

// Element (row, col) of tile t holds 64 t + 8 row + col.
template <int kTiles, bool kTrans>
__global__ void ldmatrix_kernel(LdmatrixParams p) {
  __shared__ __align__(16) uint16_t tiles[kMostTiles * 64];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < kMostTiles * 64; i += 32) tiles[i] = static_cast<uint16_t>(i);
  __syncwarp();
  uint32_t out[kTiles];
  const uint32_t row = tile::ptx::shared_address(tiles + 8 * (lane % (8 * kTiles)));
  if constexpr (kTrans) {
    tile::ptx::ldmatrix_trans(out, row);
  } else {
    tile::ptx::ldmatrix(out, row);
  }
  TESSERA_UNROLL
  for (int t = 0; t < kTiles; ++t) p.out[lane * kTiles + t] = out[t];
}

template <int kTiles, bool kTrans>
void expect_elements() {
  SCOPED_TRACE(::testing::Message() << "x" << kTiles << (kTrans ? ".trans" : ""));
  DeviceArray<uint32_t> out(32 * kTiles);
  kernels::launch(ldmatrix_kernel<kTiles, kTrans>, {.grid = dim3(1), .block = dim3(32)},
                  LdmatrixParams{out.data()}, Context{});
  const std::vector<uint32_t> got = out.read();
  for (int lane = 0; lane < 32; ++lane) {
    for (int t = 0; t < kTiles; ++t) {
      for (int i = 0; i < 2; ++i) {
        const tile::TileCoord at = tile::b_fragment_coord(2, lane, 0, i);
        const int want = 64 * t + (kTrans ? 8 * at.col + at.row : 8 * at.row + at.col);
        const uint32_t pair = got[static_cast<size_t>(lane * kTiles + t)];
        EXPECT_EQ(static_cast<int>(pair >> (16 * i) & 0xffff), want)
            << "lane " << lane << ", tile " << t << ", element " << i;
      }
    }
  }
}

TEST_F(LdmatrixTest, EachLaneReceivesItsPairOfEachTile) {
  expect_elements<1, false>();
  expect_elements<2, false>();
  expect_elements<4, false>();
}

TEST_F(LdmatrixTest, TransposedTilesAreTransposed) {
  expect_elements<1, true>();
  expect_elements<2, true>();
  expect_elements<4, true>();
}

struct ColumnsParams {
  const Bf16* a;  // [16, 16]
  const Bf16* b;  // [16 (k), 8 (n)]
  float* d;       // [16, 8]
};

// B stored [k, n] reaches the fragment through the transposing load.
__global__ void mma_from_columns_kernel(ColumnsParams p) {
  __shared__ __align__(16) Bf16 a_rows[16 * 16];
  __shared__ __align__(16) Bf16 b_rows[16 * 8];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 16; i += 32) a_rows[i] = p.a[i];
  for (int i = lane; i < 16 * 8; i += 32) b_rows[i] = p.b[i];
  __syncwarp();
  const tile::MatrixRow a_row = tile::matrix_row_16x32(lane);
  const tile::MatrixRow b_row = tile::matrix_row_16x16_trans(lane);
  uint32_t a[4];
  uint32_t b[2];
  tile::ptx::ldmatrix(a, tile::ptx::shared_address(a_rows + 16 * a_row.row + a_row.byte / 2));
  tile::ptx::ldmatrix_trans(b, tile::ptx::shared_address(b_rows + 8 * b_row.row + b_row.byte / 2));
  float d[4] = {};
  tile::ptx::mma<Bf16>(d, a, b);
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const tile::TileCoord at = tile::mma_accumulator_coord(lane, i);
    p.d[at.row * 8 + at.col] = d[i];
  }
}

TEST_F(LdmatrixTest, ATransposedLoadFeedsAProductFromColumns) {
  const IntMatrix a = random_matrix(16, 16, 4, 1);
  const IntMatrix b = random_matrix(8, 16, 4, 2);
  DeviceArray<Bf16> a_device(store_as<Bf16>(a));
  DeviceArray<Bf16> b_device(store_as<Bf16>(transposed(b)));
  DeviceArray<float> d_device(16 * 8);
  kernels::launch(mma_from_columns_kernel, {.grid = dim3(1), .block = dim3(32)},
                  ColumnsParams{a_device.data(), b_device.data(), d_device.data()}, Context{});
  EXPECT_EQ(difference(d_device.read(), product(a, b)), "");
}

struct PairParams {
  uint32_t* out;  // [32, 4]
};

// One x4 load brings two B fragments: 16 rows of 32 bytes, byte i of row r holding (16 r + i) mod
// 256.
__global__ void ldmatrix_pair_kernel(PairParams p) {
  __shared__ __align__(16) uint8_t rows[16 * 32];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * 32; i += 32) rows[i] = static_cast<uint8_t>(i / 32 * 33 + i % 32);
  __syncwarp();
  const tile::MatrixRow at = tile::matrix_row_two_8x32(lane);
  uint32_t out[4];
  tile::ptx::ldmatrix(out, tile::ptx::shared_address(rows + 32 * at.row + at.byte));
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) p.out[lane * 4 + i] = out[i];
}

TEST_F(LdmatrixTest, OneLoadBringsTwoFragmentsOfB) {
  DeviceArray<uint32_t> out(32 * 4);
  kernels::launch(ldmatrix_pair_kernel, {.grid = dim3(1), .block = dim3(32)},
                  PairParams{out.data()}, Context{});
  const std::vector<uint32_t> got = out.read();
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      for (int i = 0; i < 4; ++i) {
        const tile::TileCoord at = tile::b_fragment_coord(1, lane, reg % 2, i);
        const uint32_t want = static_cast<uint32_t>((at.row + 8 * (reg / 2)) * 33 + at.col) & 0xff;
        EXPECT_EQ(got[static_cast<size_t>(lane * 4 + reg)] >> (8 * i) & 0xff, want)
            << "lane " << lane << ", register " << reg << ", byte " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
