// The matrix product of f32 on CUDA cores.
// SPDX-License-Identifier: MIT
//
//   D = epilogue(A[m, k] . B[n, k]^T)                                    by fused multiply-adds
//
// Work      A block computes kTile.m() x kTile.n() of one product, a thread 8 x 16, 16 x 8 or 4 x 4
//           of it in quads of 4 x 4. Blocks are numbered in strips of 8 tiles (tile_at).
// Pipeline  A ring of steps of a few k in shared memory, transposed so that a thread's rows at one
//           k are neighbours. With s steps between barriers the ring has 2 s + 1 steps: s being
//           read, the next one begun early, and s being written. One more step is in flight to
//           registers, and the factors of the next k are loaded while those of this k are
//           multiplied.
// Output    Each element is one chain of fma over k in order, whatever the tile, with zeros beyond
//           k.
// Cost      2 m n k flop at 128 fma per clock and SM. Of the instructions issued for each k, 128 of
//           134 multiply (16 of 18 with 4 x 4), and a few more carry the next step;
//           docs/kernels/gemm_portable.md counts them.
// Needs     Rows of A and B that start at multiples of 16 bytes if kIsAligned.
#pragma once

#include "kernels/gemm/portable/product.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// Steps of k in shared memory, transposed: a line holds the rows of a and then those of b at one k,
// so a thread reads its rows with a few loads. The gap between a and b puts the lines of k and k +
// 4 16 banks apart, so that the two chunks of k of 16 rows that a warp stores at once use all 32
// banks.
template <SimtTile kTile>
struct SimtRing {
  static constexpr int kFirstOfB = kTile.m() + 4;
  static constexpr int kLine = kFirstOfB + kTile.n();
  static constexpr int kStepBytes = 4 * kTile.k * kLine;
  static constexpr int kBytes = kTile.num_steps() * kStepBytes;
  static_assert(kLine % 8 == 4 && kTile.k % 8 == 0);
  alignas(16) float values[kBytes / 4];
};
template <SimtTile kTile>
union SimtShared {
  SimtRing<kTile> ring;
  StagedTile<kTile.strip_m(), kTile.n()> out;
};

// A position in the ring. The offset is the same in all threads of a block and counted in bytes, so
// loads and stores take it as it is.
template <SimtTile kTile>
class RingPlace {
 public:
  // The address in this step that corresponds to `in_first_step` of the first step.
  __device__ float* at(float* in_first_step) const {
    return reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(in_first_step) + offset_);
  }
  __device__ void advance() {
    constexpr int kStepBytes = SimtRing<kTile>::kStepBytes;
    offset_ = offset_ == SimtRing<kTile>::kBytes - kStepBytes ? 0 : offset_ + kStepBytes;
  }

 private:
  int offset_ = 0;
};

// Copies kRows rows of one operand, for the k of a step, from global to shared memory through
// registers, four elements of k at a time. Two lanes read the 32 bytes of a sector.
template <SimtTile kTile, int kRows, bool kIsAligned>
class TurningLoader {
  static constexpr int kThreads = kTile.num_threads();
  static constexpr int kHalf = kThreads / 2;  // rows read at once
  static constexpr int kOwnRows = kRows > kHalf ? kRows / kHalf : 1;
  static constexpr int kLine = SimtRing<kTile>::kLine;
  static_assert(kRows * kTile.k % (4 * kThreads) == 0);
  static_assert(kRows % kHalf == 0 || kHalf % kRows == 0);

 public:
  static constexpr int kQuads = kRows * kTile.k / 4 / kThreads;

  // `first` is the operand's first row in the ring's first line. Rows beyond the last repeat it;
  // their results are not stored.
  __device__ TurningLoader(float* first, const float* data, int64_t stride, int num_rows,
                           unsigned thread) {
    const int row = static_cast<int>(thread / 2 % kRows);
    depth_ = static_cast<int>(thread / 2 / kRows * 8 + thread % 2 * 4);
    target_ = first + depth_ * kLine + row;
    TESSERA_UNROLL
    for (int i = 0; i < kOwnRows; ++i) {
      source_[i] = data + min(row + i * kHalf, num_rows - 1) * stride + depth_;
    }
  }

  // Loads quad i of a step into registers. `k_left` elements of k remain, this step included; if
  // the step is not whole, elements beyond k are zeros.
  template <bool kIsWhole>
  __device__ void fetch(int i, int k_left) {
    const float* at = source_[i % kOwnRows] + depth_of(i);
    if constexpr (kIsWhole && kIsAligned) {
      *reinterpret_cast<float4*>(values_[i]) = *reinterpret_cast<const float4*>(at);
    } else {
      TESSERA_UNROLL
      for (int e = 0; e < 4; ++e) {
        values_[i][e] = kIsWhole || depth_ + depth_of(i) + e < k_left ? at[e] : 0.0f;
      }
    }
  }
  __device__ void deposit(int i, const RingPlace<kTile>& place) const {
    float* at = place.at(target_) + depth_of(i) * kLine + i % kOwnRows * kHalf;
    TESSERA_UNROLL
    for (int e = 0; e < 4; ++e) at[e * kLine] = values_[i][e];
  }
  __device__ void advance() {
    TESSERA_UNROLL
    for (int i = 0; i < kOwnRows; ++i) source_[i] += kTile.k;
  }

 private:
  // The depth of chunk i relative to the first: all rows come before the next depth.
  __device__ static constexpr int depth_of(int i) { return kHalf * i / kRows * 8; }

  int depth_;
  float* target_;  // the first quad's place in the ring's first step
  const float* source_[kOwnRows];
  alignas(16) float values_[kQuads][4];
};

// Both operands: the quads of a and then those of b.
template <SimtTile kTile, bool kIsAligned>
class StepLoader {
  using Ring = SimtRing<kTile>;
  using LoaderA = TurningLoader<kTile, kTile.m(), kIsAligned>;
  using LoaderB = TurningLoader<kTile, kTile.n(), kIsAligned>;

 public:
  static constexpr int kQuads = LoaderA::kQuads + LoaderB::kQuads;

  __device__ StepLoader(float* ring, const PortableGemmParams& p, const float* a, const float* b,
                        int rows_of_a, int rows_of_b)
      : a_(ring, a, p.a_stride, rows_of_a, threadIdx.x),
        b_(ring + Ring::kFirstOfB, b, p.b_stride, rows_of_b, threadIdx.x),
        k_left_(p.k) {}

  // Elements of k not yet loaded; negative after the end.
  __device__ int k_left() const { return k_left_; }

  // Puts the first steps into the ring and the next one into registers.
  __device__ void start() {
    TESSERA_UNROLL
    for (int step = 0; step <= kTile.steps_per_barrier; ++step) {
      fetch_all();
      TESSERA_UNROLL
      for (int i = 0; i < kQuads; ++i) deposit(i);
      place_.advance();
    }
    fetch_all();
  }

  template <bool kIsWhole>
  __device__ void fetch(int i) {
    if (i < LoaderA::kQuads) {
      a_.template fetch<kIsWhole>(i, k_left_);
    } else {
      b_.template fetch<kIsWhole>(i - LoaderA::kQuads, k_left_);
    }
  }
  __device__ void deposit(int i) const {
    if (i < LoaderA::kQuads) {
      a_.deposit(i, place_);
    } else {
      b_.deposit(i - LoaderA::kQuads, place_);
    }
  }
  // Call after the last quad of a step has been deposited and fetched.
  __device__ void advance() {
    place_.advance();
    advance_sources();
  }

 private:
  __device__ void fetch_all() {
    TESSERA_UNROLL
    for (int i = 0; i < kQuads; ++i) fetch<false>(i);
    advance_sources();
  }
  __device__ void advance_sources() {
    a_.advance();
    b_.advance();
    k_left_ -= kTile.k;
  }

  LoaderA a_;
  LoaderB b_;
  int k_left_;
  RingPlace<kTile> place_;
};

// A thread's part of a tile. The lanes of a warp are 4 along m and 8 along n, numbered so that
// lanes 1 apart share rows and lanes 2 apart share columns: a load of 16 bytes per lane then takes
// two passes through shared memory instead of four.
template <SimtTile kTile>
class ThreadProduct {
  static constexpr int kM = 4 * kTile.quads_m;
  static constexpr int kN = 4 * kTile.quads_n;

 public:
  __device__ ThreadProduct(float* ring, unsigned thread) {
    const int lane = static_cast<int>(thread % 32);
    const int warp = static_cast<int>(thread / 32);
    row_ = warp / kTile.warps_n * 16 + 4 * (lane / 2 % 2 + lane / 8 % 2 * 2);
    col_ = warp % kTile.warps_n * 32 + 4 * (lane % 2 + lane / 4 % 2 * 2 + lane / 16 * 4);
    a_source_ = ring + row_;
    b_source_ = ring + SimtRing<kTile>::kFirstOfB + col_;
  }

  // Loads the factors of one k of the current step, in the order in which multiply uses them.
  __device__ void load(int depth, int buffer) {
    const int line = depth * SimtRing<kTile>::kLine;
    load_quads(place_.at(b_source_) + line, kTile.strip_n(), 0, 1, b_[buffer]);
    load_quads(place_.at(a_source_) + line, kTile.strip_m(), 0, kTile.quads_m, a_[buffer]);
    load_quads(place_.at(b_source_) + line, kTile.strip_n(), 1, kTile.quads_n, b_[buffer]);
  }
  __device__ void advance() { place_.advance(); }

  // The outer product of one k, walked along m a few columns at a time. From one product to the
  // next only one factor changes, so the register file delivers two operands instead of three.
  __device__ void multiply(int buffer) {
    constexpr int kWalk = kTile.walk_n;
    TESSERA_UNROLL
    for (int step = 0; step < kM * kN; ++step) {
      const int across = step / kWalk;  // rows done, over all strips of columns so far
      const int strip = across / kM;
      const int i = strip % 2 == 0 ? across % kM : kM - 1 - across % kM;
      const int j = strip * kWalk + (across % 2 == 0 ? step % kWalk : kWalk - 1 - step % kWalk);
      d_[i][j] = fmaf(a_[buffer][i], b_[buffer][j], d_[i][j]);
    }
  }

  // Stores strip `strip` of the tile: the rows of one quad of every thread. One element at a time:
  // a store of four would force accumulators into neighbouring registers, which causes bank
  // conflicts with the factors in the loop.
  __device__ void stage(StagedTile<kTile.strip_m(), kTile.n()>& tile, int strip) const {
    TESSERA_UNROLL
    for (int q = 0; q < kTile.quads_m; ++q) {
      if (q != strip) continue;  // registers cannot be indexed at run time
      TESSERA_UNROLL
      for (int i = 0; i < 4; ++i) {
        TESSERA_UNROLL
        for (int j = 0; j < kN; ++j) {
          volatile float* at = tile.at(row_ + i, col_ + j / 4 * kTile.strip_n()) + j % 4;
          *at = d_[4 * q + i][j];
        }
      }
    }
  }

 private:
  template <int kCount>
  __device__ static void load_quads(const float* at, int strip, int first, int last,
                                    float (&out)[kCount]) {
    TESSERA_UNROLL
    for (int q = first; q < last; ++q) {
      const float4 quad = *reinterpret_cast<const float4*>(at + q * strip);
      out[4 * q] = quad.x;
      out[4 * q + 1] = quad.y;
      out[4 * q + 2] = quad.z;
      out[4 * q + 3] = quad.w;
    }
  }

  int row_;  // the first quad's place in the tile
  int col_;
  float* a_source_;  // in the ring's first line
  float* b_source_;
  RingPlace<kTile> place_;
  float a_[2][kM];
  float b_[2][kN];
  float d_[kM][kN] = {};
};

// One step of k. At each k one quad of the next step is stored, and one k later its registers are
// loaded anew. Spread like this, neither delays the multiplications, and loads have most of a step
// to arrive.
template <bool kIsWhole, SimtTile kTile, bool kIsAligned>
__device__ void multiply_step(StepLoader<kTile, kIsAligned>& loader,
                              ThreadProduct<kTile>& product) {
  constexpr int kFirstDeposit = kTile.first_deposit;
  constexpr int kFirstFetch = kFirstDeposit + 1;
  constexpr int kQuads = StepLoader<kTile, kIsAligned>::kQuads;
  static_assert(kFirstFetch + kQuads <= kTile.k);
  TESSERA_UNROLL
  for (int depth = 0; depth < kTile.k; ++depth) {
    if (depth == kTile.k - 1) product.advance();
    product.load((depth + 1) % kTile.k, (depth + 1) % 2);
    if (kFirstDeposit <= depth && depth < kFirstDeposit + kQuads) {
      loader.deposit(depth - kFirstDeposit);
    }
    if (kFirstFetch <= depth && depth < kFirstFetch + kQuads) {
      loader.template fetch<kIsWhole>(depth - kFirstFetch);
    }
    product.multiply(depth % 2);
  }
  loader.advance();
}

template <class Tile, bool kIsAligned>
__global__ void __launch_bounds__(Tile::kShape.num_threads(), Tile::kShape.min_blocks)
    gemm_f32_kernel(const __grid_constant__ PortableGemmParams p) {
  constexpr SimtTile kTile = Tile::kShape;
  using Shared = SimtShared<kTile>;
  extern __shared__ __align__(128) unsigned char dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const TileIndex tile = tile_at(static_cast<int>(blockIdx.x), p.tiles_m, p.tiles_n);
  const int row = tile.m * kTile.m();
  const int col = tile.n * kTile.n();
  const float* a =
      static_cast<const float*>(p.a) + tile.batch * p.a_batch_stride + row * p.a_stride;
  const float* b =
      static_cast<const float*>(p.b) + tile.batch * p.b_batch_stride + col * p.b_stride;
  float* const ring = shared.ring.values;
  StepLoader<kTile, kIsAligned> loader(ring, p, a, b, p.epilogue.m - row, p.epilogue.n - col);
  ThreadProduct<kTile> product(ring, threadIdx.x);

  loader.start();
  __syncthreads();
  product.load(0, 0);
  int steps_left = kTile.steps_per_barrier;
  const auto end_step = [&] {
    if (--steps_left > 0) return;
    steps_left = kTile.steps_per_barrier;
    __syncthreads();
  };
  while (loader.k_left() >= kTile.k) {
    multiply_step<true>(loader, product);
    end_step();
  }
  // The last steps: what they prefetch is cut by the end of k or lies beyond it.
  while (loader.k_left() > -(kTile.steps_per_barrier + 2) * kTile.k) {
    multiply_step<false>(loader, product);
    end_step();
  }

  for (int strip = 0; strip < kTile.quads_m; ++strip) {
    __syncthreads();  // the ring, or the strip before, has been read
    product.stage(shared.out, strip);
    __syncthreads();
    finish_tile<float>(shared.out, p.epilogue, row + strip * kTile.strip_m(), col, tile.batch);
  }
}

template <class Tile, bool kIsAligned>
void launch_simt(const GemmArgs& args, const Context& ctx) {
  constexpr SimtTile kTile = Tile::kShape;
  const TileCounts tiles = count_tiles(product_size(args), kTile.m(), kTile.n());
  if (tiles.total() == 0) return;
  launch(&gemm_f32_kernel<Tile, kIsAligned>,
         {.grid = dim3(static_cast<unsigned>(tiles.total())),
          .block = dim3(kTile.num_threads()),
          .shared_bytes = sizeof(SimtShared<kTile>)},
         portable_gemm_params(args, tiles), ctx);
}

template <bool kIsAligned>
void launch_gemm_f32(const GemmArgs& args, const Context& ctx) {
  const int num_sms = device_info(args.a.device).num_sms;
  const SimtTile tile = choose_simt_tile(product_size(args), num_sms, kIsAligned);
  if constexpr (kIsAligned) {
    if (tile == SimtWide::kShape) return launch_simt<SimtWide, true>(args, ctx);
  }
  if (tile == SimtLarge::kShape) return launch_simt<SimtLarge, kIsAligned>(args, ctx);
  launch_simt<SimtSmall, kIsAligned>(args, ctx);
}

}  // namespace tessera::kernels
