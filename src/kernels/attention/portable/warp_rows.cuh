// A warp's rows of a tile on tensor cores: S = Q K^T, the softmax, O += P V, all in registers.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/online_softmax.cuh"
#include "kernels/attention/portable/load.cuh"
#include "kernels/attention/portable/tile.h"
#include "kernels/attention/scores.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/mma.cuh"

namespace tessera::kernels {

// A thread holds, of each block of 16 rows, rows lane / 4 and lane / 4 + 8, and of each block of 8
// columns two side by side (tile/fragment.cuh). So four lanes share a row.
template <class T, class Tile>
class WarpRows {
  static constexpr MmaAttentionTile kTile = Tile::kShape;
  static constexpr int kM = kTile.warp_rows() / 16;
  static constexpr int kN = kTile.keys / 8;
  static constexpr int kV = kTile.d_v / 8;
  static constexpr int kStepsQk = kTile.d_k / 16;
  static constexpr int kStepsPv = kTile.keys / 16;
  using Queries = Slabs<kTile.rows, kTile.d_k>;
  using Keys = Slabs<kTile.keys, kTile.d_k>;
  using Values = Slabs<kTile.keys, kTile.d_v>;
  using Out = Slabs<kTile.rows, kTile.d_v>;

 public:
  using Scores = float[kM][kN][4];

  // `q` is the shared address of the tile's queries.
  __device__ explicit WarpRows(uint32_t q) {
    const tile::MatrixRow a = tile::matrix_row_16x32(lane());
    const tile::MatrixRow b = tile::matrix_row_two_8x32(lane());
    q_tile_ = q;
    q_offset_ = Queries::at(first_row() + a.row, a.byte);
    k_offset_ = Keys::at(b.row, b.byte);
    v_offset_ = Values::at(a.row, a.byte);
  }

  // Where row `half` of block `i` of 16 rows of this thread stands in the tile.
  __device__ int row(int i, int half) const { return first_row() + 16 * i + 8 * half + lane() / 4; }
  // Where the first of the two columns stands that this thread holds of block `j` of 8.
  __device__ int column(int j) const { return 8 * j + 2 * (lane() % 4); }

  // Once Q is in shared memory.
  __device__ void hold_q() {
    if constexpr (kTile.holds_q) {
      TESSERA_UNROLL
      for (int step = 0; step < kStepsQk; ++step) load_q(step, held_q_[step]);
    }
  }

  // S = Q K^T with K at this shared address. The fragments of the next few products are on their
  // way while those in hand are multiplied.
  __device__ void multiply_qk(uint32_t k, Scores& s) const {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kN; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) s[i][j][e] = 0.0f;
      }
    }
    constexpr int kLoads = kStepsQk * kN / 2;
    uint32_t a[2][kM][4];
    uint32_t b[2][4];
    if constexpr (!kTile.holds_q) load_q(0, a[0]);
    load_k(k, 0, b[0]);
    TESSERA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const int step = load / (kN / 2);
      const int j = load % (kN / 2);
      if (load + 1 < kLoads) load_k(k, load + 1, b[(load + 1) % 2]);
      if constexpr (kTile.holds_q) {
        multiply_pair(held_q_[step], b[load % 2], s, j);
      } else {
        if (j == 0 && step + 1 < kStepsQk) load_q(step + 1, a[(step + 1) % 2]);
        multiply_pair(a[step % 2], b[load % 2], s, j);
      }
    }
  }

  // The maxima of a block of scores; what is summed already shrinks where a maximum has grown.
  // Multiplying by exactly 1 keeps every bit, so a warp none of whose maxima grew leaves it out.
  __device__ void raise(const Scores& s, float scale) {
    float shrink[kM][2];
    bool has_grown = false;
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        float largest = fmaxf(s[i][0][2 * half], s[i][0][2 * half + 1]);
        TESSERA_UNROLL
        for (int j = 1; j < kN; ++j) {
          largest = fmaxf(largest, fmaxf(s[i][j][2 * half], s[i][j][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, 2));
        has_grown |= largest > softmax_[i][half].max;
        shrink[i][half] = softmax_[i][half].raise(largest, scale);
      }
    }
    if (!__any_sync(~0u, has_grown)) return;
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int j = 0; j < kV; ++j) {
        TESSERA_UNROLL
        for (int e = 0; e < 4; ++e) o_[i][j][e] *= shrink[i][e / 2];
      }
    }
  }

  // O += P V with V at this shared address, 16 keys at a time: scores become weights, these are
  // added up, pass through `drop`, are rounded to T and multiplied.
  template <class Drop>
  __device__ void multiply_pv(uint32_t v, Scores& s, float scale, Drop drop) {
    constexpr int kLoads = kStepsPv * kV / 2;
    uint32_t a[kM][4];
    uint32_t b[2][4];
    load_v(v, 0, b[0]);
    TESSERA_UNROLL
    for (int load = 0; load < kLoads; ++load) {
      const int step = load / (kV / 2);
      const int j = load % (kV / 2);
      if (load + 1 < kLoads) load_v(v, load + 1, b[(load + 1) % 2]);
      if (j == 0) take_weights(s, step, scale, drop, a);
      multiply_pair(a, b[load % 2], o_, j);
    }
  }

  // Sums of rows over all their columns, and what the rows end with.
  __device__ RowEnd finish(int i, int half, float scale, float sink) const {
    SoftmaxRow total = softmax_[i][half];
    total.sum += __shfl_xor_sync(~0u, total.sum, 1);
    total.sum += __shfl_xor_sync(~0u, total.sum, 2);
    return finish_row(total, scale, sink);
  }

  // Rows of out, rounded, into the tile at `target` in shared memory.
  __device__ void stage(unsigned char* target, int i, int half, float factor) const {
    TESSERA_UNROLL
    for (int j = 0; j < kV; ++j) {
      const float* pair = &o_[i][j][2 * half];
      const uint32_t at = Out::at(row(i, half), 4 * (lane() % 4));
      // A block of 8 columns is a chunk of 16 bytes, half a step.
      const uint32_t place = Out::at_step(at, j / 2) ^ static_cast<uint32_t>(j % 2 * 16);
      *reinterpret_cast<uint32_t*>(target + place) =
          tile::pack_pair<T>(pair[0] * factor, pair[1] * factor);
    }
  }

 private:
  static constexpr int kHeldSteps = kTile.holds_q ? kStepsQk : 1;

  // Asked for anew each time: to hold them would take registers.
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 * kTile.warp_rows();
  }

  __device__ void load_q(int step, uint32_t (&a)[kM][4]) const {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      tile::ptx::ldmatrix(
          a[i], q_tile_ + Queries::at_step(q_offset_, step) + 16 * i * Queries::kRowBytes);
    }
  }
  // 16 keys by one step of d_k.
  __device__ void load_k(uint32_t k, int load, uint32_t (&b)[4]) const {
    const int step = load / (kN / 2);
    const int j = load % (kN / 2);
    tile::ptx::ldmatrix(b, k + Keys::at_step(k_offset_, step) + 16 * j * Keys::kRowBytes);
  }
  // 16 keys by 16 columns of d_v, turned.
  __device__ void load_v(uint32_t v, int load, uint32_t (&b)[4]) const {
    const int step = load / (kV / 2);
    const int j = load % (kV / 2);
    tile::ptx::ldmatrix_trans(b, v + Values::at_step(v_offset_, j) + 16 * step * Values::kRowBytes);
  }

  // One step of all rows against 16 columns.
  template <int kColumns>
  __device__ static void multiply_pair(const uint32_t (&a)[kM][4], const uint32_t (&b)[4],
                                       float (&d)[kM][kColumns][4], int j) {
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const uint32_t column[2] = {b[2 * half], b[2 * half + 1]};
      TESSERA_UNROLL
      for (int i = 0; i < kM; ++i) tile::ptx::mma<T>(d[i][2 * j + half], a[i], column);
    }
  }

  template <class Drop>
  __device__ void take_weights(Scores& s, int step, float scale, Drop drop, uint32_t (&a)[kM][4]) {
    TESSERA_UNROLL
    for (int i = 0; i < kM; ++i) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 4; ++reg) {  // tile::a_fragment_coord: rows, then columns
        const int half = reg % 2;
        const int j = 2 * step + reg / 2;
        SoftmaxRow& row = softmax_[i][half];
        float* pair = &s[i][j][2 * half];
        const float offset = row.offset(scale);
        pair[0] = softmax_weight(pair[0], scale, offset);
        pair[1] = softmax_weight(pair[1], scale, offset);
        row.sum += pair[0];
        row.sum += pair[1];
        drop(i, half, j, pair[0], pair[1]);
        a[i][reg] = tile::pack_pair<T>(pair[0], pair[1]);
      }
    }
  }

  uint32_t q_tile_;
  uint32_t q_offset_;  // of this lane's first row for ldmatrix, in its tile
  uint32_t k_offset_;
  uint32_t v_offset_;
  uint32_t held_q_[kHeldSteps][kM][4];
  SoftmaxRow softmax_[kM][2];
  float o_[kM][kV][4] = {};
};

}  // namespace tessera::kernels
