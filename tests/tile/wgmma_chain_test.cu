// Two products in a row, as in attention: the first one's accumulators are the second one's A.
// SPDX-License-Identifier: MIT
#include "tests/tile/wgmma_case.cuh"

namespace tessera::testing {
namespace {

constexpr int kKeys = 128;
constexpr int kHeadDim = 128;
constexpr int kValueDim = 64;

template <class T>
struct ChainParams {
  const T* q;    // [64, kHeadDim]
  const T* k;    // [kKeys, kHeadDim]
  const T* v_t;  // [kValueDim, kKeys]; lies in shared memory as [kKeys, kValueDim]
  float* o;      // [64, kValueDim]
};

// o = (q . k^T) . v, the middle rounded to T in registers.
template <class T>
__global__ void __launch_bounds__(128) chain_sm90_kernel(ChainParams<T> p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  static_assert(kHeadDim == kWgmmaK<T> && kKeys == kWgmmaK<T>);
  constexpr Swizzle kSwizzle = Swizzle::b128;
  constexpr int kQBytes = tile_bytes<T>(false, kSwizzle, kWgmmaM);
  constexpr int kKBytes = tile_bytes<T>(false, kSwizzle, kKeys);
  fill_tile(shared, p.q, kWgmmaM, false, kSwizzle);
  fill_tile(shared + kQBytes, p.k, kKeys, false, kSwizzle);
  fill_tile(shared + kQBytes + kKBytes, p.v_t, kValueDim, true, kSwizzle);
  tile::ptx::fence_proxy_async_shared();
  __syncthreads();
  const uint32_t q_tile = tile::ptx::shared_address(shared);
  const uint32_t k_tile = q_tile + kQBytes;
  const uint32_t v_tile = k_tile + kKBytes;

  float s[kKeys / 2];
  tile::ptx::wgmma_fence();
  TESSERA_UNROLL
  for (int step = 0; step < kHeadDim / 16; ++step) {
    tile::ptx::wgmma_ss<T, T>(s, descriptor_at<T, kSwizzle, false>(q_tile, kWgmmaM, 32 * step),
                              descriptor_at<T, kSwizzle, false>(k_tile, kKeys, 32 * step),
                              step > 0);
  }
  tile::ptx::wgmma_commit_group();
  tile::ptx::wgmma_wait_group<0>();
  tile::ptx::wgmma_hold(s);

  uint32_t probabilities[kKeys / 16][4];
  TESSERA_UNROLL
  for (int step = 0; step < kKeys / 16; ++step) {
    tile::accumulator_to_a<T>(s, step, probabilities[step]);
    tile::ptx::wgmma_hold(probabilities[step]);
  }
  constexpr WgmmaFlags kFlags{.b_is_mn_major = true};
  float o[kValueDim / 2];
  tile::ptx::wgmma_fence();
  TESSERA_UNROLL
  for (int step = 0; step < kKeys / 16; ++step) {
    tile::ptx::wgmma_rs<T, T, kFlags>(
        o, probabilities[step], descriptor_at<T, kSwizzle, true>(v_tile, kValueDim, 32 * step),
        step > 0);
  }
  tile::ptx::wgmma_commit_group();
  tile::ptx::wgmma_wait_group<0>();
  tile::ptx::wgmma_hold(o);
  TESSERA_UNROLL
  for (int i = 0; i < kValueDim / 2; ++i) {
    const tile::TileCoord at = tile::wgmma_accumulator_coord(static_cast<int>(threadIdx.x), i);
    p.o[at.row * kValueDim + at.col] = o[i];
  }
}

// Entries of q and k in [-1, 1]: |s| <= 128 is exact in both 16-bit types.
template <class T>
void expect_exact_chain() {
  const IntMatrix q = random_matrix(kWgmmaM, kHeadDim, 1, 1);
  const IntMatrix k = random_matrix(kKeys, kHeadDim, 1, 2);
  const IntMatrix v_t = random_matrix(kValueDim, kKeys, 4, 3);
  DeviceArray<T> q_device(store_as<T>(q));
  DeviceArray<T> k_device(store_as<T>(k));
  DeviceArray<T> v_t_device(store_as<T>(v_t));
  DeviceArray<float> o_device(kWgmmaM * kValueDim);
  const ChainParams<T> params{q_device.data(), k_device.data(), v_t_device.data(), o_device.data()};
  kernels::launch(chain_sm90_kernel<T>,
                  {.grid = dim3(1), .block = dim3(128), .shared_bytes = 64 * 1024}, params,
                  Context{});
  EXPECT_EQ(difference(o_device.read(), product(product(q, k), v_t)), "");
}

class WgmmaChainTest : public HopperTest {};

TEST_F(WgmmaChainTest, AccumulatorsBecomeTheNextProductsAInBf16) { expect_exact_chain<Bf16>(); }
TEST_F(WgmmaChainTest, AccumulatorsBecomeTheNextProductsAInF16) { expect_exact_chain<F16>(); }

}  // namespace
}  // namespace tessera::testing
