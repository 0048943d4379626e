// One WGMMA test case: a 64xNxK product with operands laid out in shared memory as the case asks.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tests/tile/matrices.h"
#include "tile/descriptor.cuh"
#include "tile/device_assert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/wgmma.cuh"
#include "tile/unroll.cuh"

namespace tessera::testing {

using tile::Swizzle;
using tile::ptx::WgmmaFlags;
using tile::ptx::WgmmaSource;

// What a case is. A kernel takes it as std::integral_constant<WgmmaShape, ...>: nvcc 13 writes host
// stubs that do not compile for a kernel templated on a value of a class type in a namespace.
struct WgmmaShape {
  int n;
  WgmmaSource source = WgmmaSource::shared;
  Swizzle swizzle = Swizzle::b128;
  WgmmaFlags flags = {};
};

inline constexpr int kWgmmaM = 64;
inline constexpr int kInitial = 7;  // what D holds before the first product

// K spans two slabs of the widest swizzle, so that the walk from slab to slab is tested too.
template <class T>
inline constexpr int kWgmmaK = 256 / static_cast<int>(sizeof(T));

template <class T>
using AccumulatorOf = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;

template <class A, class B>
struct WgmmaParams {
  const A* a;           // [64, k]
  const B* b;           // [n, k]
  AccumulatorOf<A>* d;  // [64, n]
  bool accumulate;      // whether the first product adds to kInitial
};

template <class T>
constexpr int tile_bytes(bool is_mn_major, Swizzle swizzle, int num_rows) {
  if (!is_mn_major) return num_rows * kWgmmaK<T> * static_cast<int>(sizeof(T));
  const int span = tile::span_bytes(swizzle);
  return (num_rows * static_cast<int>(sizeof(T)) + span - 1) / span * span * kWgmmaK<T>;
}

// Spreads `num_rows` rows of k over a tile in shared memory, by ordinary stores.
template <class T>
__device__ void fill_tile(unsigned char* tile, const T* rows, int num_rows, bool is_mn_major,
                          Swizzle swizzle) {
  constexpr int kBytes = static_cast<int>(sizeof(T));
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kWgmmaK<T>; i += 128) {
    const int row = i / kWgmmaK<T>;
    const int k = i % kWgmmaK<T>;
    const uint32_t offset = is_mn_major ? tile::slab_offset(swizzle, kWgmmaK<T>, k, row * kBytes)
                                        : tile::slab_offset(swizzle, num_rows, row, k * kBytes);
    *reinterpret_cast<T*>(tile + offset) = rows[i];
  }
}

// The descriptor of the operand at `k_bytes` along k.
template <class T, Swizzle kSwizzle, bool kIsMnMajor>
__device__ uint64_t descriptor_at(uint32_t tile, int num_rows, int k_bytes) {
  if constexpr (kIsMnMajor) {
    return tile::advance(tile::mn_major_descriptor<kSwizzle>(tile, kWgmmaK<T>),
                         tile::mn_major_advance<kSwizzle>(k_bytes / static_cast<int>(sizeof(T))));
  } else {
    return tile::advance(tile::k_major_descriptor<kSwizzle>(tile, num_rows),
                         tile::k_major_advance<kSwizzle>(num_rows, k_bytes));
  }
}

template <class A>
__device__ void load_a_fragment(const A* rows, int k_bytes, uint32_t (&a)[4]) {
  constexpr int kBytes = static_cast<int>(sizeof(A));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 * 16;
  TESSERA_UNROLL
  for (int reg = 0; reg < 4; ++reg) {
    a[reg] = 0;
    TESSERA_UNROLL
    for (int i = 0; i < 4 / kBytes; ++i) {
      const tile::TileCoord at = tile::a_fragment_coord(kBytes, lane, reg, i);
      const A value = rows[(first_row + at.row) * kWgmmaK<A> + k_bytes / kBytes + at.col];
      uint32_t bits;
      if constexpr (std::is_same_v<A, int8_t>) {
        bits = static_cast<uint8_t>(value);
      } else {
        bits = value.bits;
      }
      a[reg] |= bits << (8 * kBytes * i);
    }
  }
}

template <class A, class B, class Shape>
__global__ void __launch_bounds__(128) wgmma_case_sm90_kernel(WgmmaParams<A, B> p) {
  constexpr WgmmaShape kShape = Shape::value;
  extern __shared__ __align__(1024) unsigned char shared[];
  constexpr WgmmaFlags kFlags = kShape.flags;
  constexpr int kATileBytes = tile_bytes<A>(kFlags.a_is_mn_major, kShape.swizzle, kWgmmaM);
  fill_tile(shared, p.a, kWgmmaM, kFlags.a_is_mn_major, kShape.swizzle);
  fill_tile(shared + kATileBytes, p.b, kShape.n, kFlags.b_is_mn_major, kShape.swizzle);
  tile::ptx::fence_proxy_async_shared();
  __syncthreads();

  const uint32_t a_tile = tile::ptx::shared_address(shared);
  TESSERA_DEVICE_ASSERT(a_tile % 1024 == 0);
  const uint32_t b_tile = a_tile + kATileBytes;
  constexpr int kSteps = 256 / 32;
  uint32_t a[kSteps][4];
  if constexpr (kShape.source == WgmmaSource::registers) {
    TESSERA_UNROLL
    for (int step = 0; step < kSteps; ++step) load_a_fragment(p.a, 32 * step, a[step]);
  }
  AccumulatorOf<A> d[kShape.n / 2];
  TESSERA_UNROLL
  for (int i = 0; i < kShape.n / 2; ++i) d[i] = kInitial;
  tile::ptx::wgmma_hold(d);
  tile::ptx::wgmma_fence();
  TESSERA_UNROLL
  for (int step = 0; step < kSteps; ++step) {
    const uint64_t b_descriptor =
        descriptor_at<B, kShape.swizzle, kFlags.b_is_mn_major>(b_tile, kShape.n, 32 * step);
    const bool accumulate = step > 0 || p.accumulate;
    if constexpr (kShape.source == WgmmaSource::registers) {
      tile::ptx::wgmma_rs<A, B, kFlags>(d, a[step], b_descriptor, accumulate);
    } else {
      const uint64_t a_descriptor =
          descriptor_at<A, kShape.swizzle, kFlags.a_is_mn_major>(a_tile, kWgmmaM, 32 * step);
      tile::ptx::wgmma_ss<A, B, kFlags>(d, a_descriptor, b_descriptor, accumulate);
    }
  }
  tile::ptx::wgmma_commit_group();
  tile::ptx::wgmma_wait_group<0>();
  tile::ptx::wgmma_hold(d);
  TESSERA_UNROLL
  for (int i = 0; i < kShape.n / 2; ++i) {
    const tile::TileCoord at = tile::wgmma_accumulator_coord(static_cast<int>(threadIdx.x), i);
    p.d[at.row * kShape.n + at.col] = d[i];
  }
}

template <class A, class B, WgmmaShape kShape>
void expect_exact_wgmma() {
  SCOPED_TRACE(::testing::Message()
               << name(dtype_of<A>) << " x " << name(dtype_of<B>) << ", n " << kShape.n << ", A in "
               << (kShape.source == WgmmaSource::shared ? "shared memory" : "registers")
               << ", swizzle of " << tile::span_bytes(kShape.swizzle) << " bytes");
  const IntMatrix a = random_matrix(kWgmmaM, kWgmmaK<A>, kLargestOperand<A>, 1);
  const IntMatrix b = random_matrix(kShape.n, kWgmmaK<B>, kLargestOperand<B>, 2);
  const int sign = kShape.flags.negate_a != kShape.flags.negate_b ? -1 : 1;
  DeviceArray<A> a_device(store_as<A>(a));
  DeviceArray<B> b_device(store_as<B>(b));
  for (const bool accumulate : {false, true}) {
    SCOPED_TRACE(accumulate ? "adding to D" : "overwriting D");
    IntMatrix want = product(a, b);
    for (int& value : want.values) value = sign * value + (accumulate ? kInitial : 0);
    DeviceArray<AccumulatorOf<A>> d_device(want.values.size());
    const WgmmaParams<A, B> params{a_device.data(), b_device.data(), d_device.data(), accumulate};
    const size_t shared_bytes =
        static_cast<size_t>(tile_bytes<A>(kShape.flags.a_is_mn_major, kShape.swizzle, kWgmmaM) +
                            tile_bytes<B>(kShape.flags.b_is_mn_major, kShape.swizzle, kShape.n));
    kernels::launch(wgmma_case_sm90_kernel<A, B, std::integral_constant<WgmmaShape, kShape>>,
                    {.grid = dim3(1), .block = dim3(128), .shared_bytes = shared_bytes}, params,
                    Context{});
    EXPECT_EQ(difference(d_device.read(), want), "");
  }
}

// Each n, with A in shared memory and in registers.
template <class A, class B, int... kNs>
void expect_exact_wgmma_for_each_n() {
  (expect_exact_wgmma<A, B, WgmmaShape{.n = kNs}>(), ...);
  (expect_exact_wgmma<A, B, WgmmaShape{.n = kNs, .source = WgmmaSource::registers}>(), ...);
}

}  // namespace tessera::testing
