// One mma.sync test case: a 16x8 product over two steps of k, operands brought by ldmatrix.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tests/tile/matrices.h"
#include "tile/fragment.cuh"
#include "tile/ptx/address.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/unroll.cuh"

namespace tessera::testing {

inline constexpr int kMmaSteps = 2;
inline constexpr int kMmaRowBytes = 32 * kMmaSteps;

template <class T>
inline constexpr int kMmaK = kMmaRowBytes / static_cast<int>(sizeof(T));

template <class A, class B, class D>
struct MmaParams {
  const A* a;  // [16, k]
  const B* b;  // [8, k]
  D* d;        // [16, 8]
};

// `Multiply` is called as multiply(d, a, b) on one step's fragments.
template <class A, class B, class D, class Multiply>
__global__ void mma_case_kernel(MmaParams<A, B, D> p) {
  __shared__ __align__(16) A a_rows[16 * kMmaK<A>];
  __shared__ __align__(16) B b_rows[8 * kMmaK<B>];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 16 * kMmaK<A>; i += 32) a_rows[i] = p.a[i];
  for (int i = lane; i < 8 * kMmaK<B>; i += 32) b_rows[i] = p.b[i];
  __syncwarp();
  const uint32_t a_address = tile::ptx::shared_address(a_rows);
  const uint32_t b_address = tile::ptx::shared_address(b_rows);
  D d[4] = {};
  TESSERA_UNROLL
  for (int step = 0; step < kMmaSteps; ++step) {
    const tile::MatrixRow a_row = tile::matrix_row_16x32(lane);
    const tile::MatrixRow b_row = tile::matrix_row_8x32(lane);
    uint32_t a[4];
    uint32_t b[2];
    tile::ptx::ldmatrix(
        a, a_address + static_cast<uint32_t>(a_row.row * kMmaRowBytes + 32 * step + a_row.byte));
    tile::ptx::ldmatrix(
        b, b_address + static_cast<uint32_t>(b_row.row * kMmaRowBytes + 32 * step + b_row.byte));
    Multiply{}(d, a, b);
  }
  TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) {
    const tile::TileCoord at = tile::mma_accumulator_coord(lane, i);
    p.d[at.row * 8 + at.col] = d[i];
  }
}

template <class A, class B, class D, class Multiply>
void expect_exact_mma(int largest_a, int largest_b) {
  const IntMatrix a = random_matrix(16, kMmaK<A>, largest_a, 1);
  const IntMatrix b = random_matrix(8, kMmaK<B>, largest_b, 2);
  DeviceArray<A> a_device(store_as<A>(a));
  DeviceArray<B> b_device(store_as<B>(b));
  DeviceArray<D> d_device(16 * 8);
  const MmaParams<A, B, D> params{a_device.data(), b_device.data(), d_device.data()};
  kernels::launch(mma_case_kernel<A, B, D, Multiply>, {.grid = dim3(1), .block = dim3(32)}, params,
                  Context{});
  EXPECT_EQ(difference(d_device.read(), product(a, b)), "");
}

}  // namespace tessera::testing
