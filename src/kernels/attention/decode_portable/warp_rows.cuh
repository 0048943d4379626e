// A warp of the portable decode kernel: a tile of rows against 32 keys at a time.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode_portable/fold.cuh"
#include "kernels/attention/decode_portable/keys.cuh"
#include "kernels/attention/decode_portable/kv_chunk.cuh"
#include "kernels/attention/scores.cuh"
#include "tile/reduce.cuh"

namespace tessera::kernels {

inline constexpr int kMostChunks = kDecodeMostDim / kChunk;
inline constexpr int kKeysInFlight = 4;  // of a lane

// The queries of a tile, both halves of a chunk apart, so that neighbouring lanes read neighbouring
// 16 bytes. Zeros beyond head_dim, and in rows that are not there.
template <int kRows>
struct DecodeQueries {
  float4 halves[kRows][2][kMostChunks];

  __device__ void set(int row, int column, float value) {
    const int in_chunk = column % kChunk;
    float* half = &halves[row][in_chunk / 4][column / kChunk].x;
    half[in_chunk % 4] = value;
  }
};
// What the lanes of one warp hand each other for a step of 32 keys.
template <int kRows>
struct DecodeStepShared {
  alignas(16) float scores[kDecodeStepKeys][kRows];  // products of q and k, then weights
  KvPlace places[kDecodeStepKeys];
};

// Adds up each of kRows values over `lanes` lanes in a row, a power of two and at least kRows: half
// of the values go one way, half the other, until each lane has one. It is that of row
// (lane % lanes) / (lanes / kRows).
template <int kRows>
__device__ __forceinline__ float sum_over_lanes(float (&values)[kRows], int lane, int lanes) {
  int bit = lanes / 2;
  TESSERA_UNROLL
  for (int half = kRows / 2; half > 0; half /= 2) {
    const bool is_upper = (lane & bit) != 0;
    TESSERA_UNROLL
    for (int i = 0; i < half; ++i) {
      const float kept = is_upper ? values[i + half] : values[i];
      const float sent = is_upper ? values[i] : values[i + half];
      values[i] = kept + __shfl_xor_sync(~0u, sent, bit);
    }
    bit /= 2;
  }
  for (; bit > 0; bit /= 2) values[0] += __shfl_xor_sync(~0u, values[0], bit);
  return values[0];
}

// Calls f(KvChunk<code>) for one of the codes that q of type T may meet.
template <class T, class F>
__device__ __forceinline__ void with_kv_code(KvCode code, F&& f) {
  constexpr KvCode kPlain = std::is_same_v<T, float> ? KvCode::f32
                            : std::is_same_v<T, F16> ? KvCode::f16
                                                     : KvCode::bf16;
  switch (code) {
    case KvCode::e4m3: return f(KvChunk<KvCode::e4m3>{});
    case KvCode::e5m2: return f(KvChunk<KvCode::e5m2>{});
    case KvCode::i8: return f(KvChunk<KvCode::i8>{});
    case KvCode::u8: return f(KvChunk<KvCode::u8>{});
    case KvCode::i4: return f(KvChunk<KvCode::i4>{});
    default: return f(KvChunk<kPlain>{});
  }
}

template <class T, int kRows>
class WarpDecode {
  static_assert(kRows == 4 || kRows == 8);
  using Queries = DecodeQueries<kRows>;
  using Step = DecodeStepShared<kRows>;

 public:
  __device__ WarpDecode(const DecodeParams& p, const DecodeKeys& keys, const Queries& queries,
                        const DecodeRow (&rows)[kRows], Step& step, int sequence, int kv_head)
      : p_(p),
        keys_(keys),
        queries_(queries),
        rows_(rows),
        step_(step),
        sequence_(sequence),
        kv_head_(kv_head),
        lane_(static_cast<int>(threadIdx.x) % 32),
        lanes_(decode_lanes(p.head_dim)),
        chunk_(lane_ % lanes_),
        columns_{chunk_ * kChunk, min(kChunk, p.head_dim - chunk_ * kChunk)} {}

  // Keys `first` to first + 31, as far as they are below `end`.
  __device__ void meet(int first, int end) {
    const int n = first + lane_;
    const int key = n < end ? keys_.at(n) : -1;
    const unsigned seen = key >= 0 ? rows_that_see(key) : 0;
    const unsigned all = __ballot_sync(~0u, seen != 0);
    if (all == 0) return;
    const unsigned in_tail = __ballot_sync(~0u, seen != 0 && keys_.is_in_tail(key));
    __syncwarp();  // what the step before left has been read
    if (seen != 0) step_.places[lane_] = place_of(key);
    __syncwarp();
    add_scores(all, in_tail);
    __syncwarp();
    take_weights(key, seen);
    __syncwarp();
    const KvHead v(p_.v, kv_head_);
    with_kv_code<T>(p_.v.code, [&](auto chunk) { add_values<decltype(chunk)>(v, all); });
  }

  // Once all keys are met: lanes with the same columns have met different keys.
  __device__ void finish() {
    for (int bit = lanes_; bit < 32; bit *= 2) {
      TESSERA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        TESSERA_UNROLL
        for (int i = 0; i < kChunk; ++i) o_[r][i] += __shfl_xor_sync(~0u, o_[r][i], bit);
      }
    }
    TESSERA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      softmax_[r].sum = tile::warp_reduce<tile::Sum>(softmax_[r].sum);
    }
  }
  __device__ void leave(DecodeStates<kRows>& states, int warp) const {
    TESSERA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (lane_ == 0) {
        states.max[warp][r] = softmax_[r].max;
        states.sum[warp][r] = softmax_[r].sum;
      }
      if (lane_ >= lanes_) continue;
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) {
        if (i < columns_.count) states.o[warp][r][columns_.first + i] = o_[r][i];
      }
    }
  }

 private:
  // A bit for each.
  __device__ unsigned rows_that_see(int key) const {
    unsigned seen = 0;
    TESSERA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (keys_.sees(rows_[r], key)) seen |= 1u << r;
    }
    return seen;
  }

  __device__ KvPlace place_of(int key) const {
    if (p_.page_table == nullptr) return {sequence_, key};
    const int page = key / p_.page_size;
    return {p_.page_table[sequence_ * p_.table_stride + page], key - page * p_.page_size};
  }

  // In turn t of a step, 32 / lanes keys are met at once.
  __device__ int slot(int turn) const { return (turn * 32 + lane_) / lanes_; }
  // Of kKeysInFlight turns from `turn` on.
  __device__ unsigned slots_of(unsigned mask, int turn) const {
    const int keys = 32 / lanes_;
    return mask >> (turn * keys) & ((1u << (kKeysInFlight * keys)) - 1u);
  }

  __device__ void add_scores(unsigned all, unsigned in_tail) {
    const KvHead k(p_.k, kv_head_);
    const auto in_pages = [&](int at) { return step_.places[at]; };
    if (p_.k.code != KvCode::i4_columns) {
      return with_kv_code<T>(p_.k.code,
                             [&](auto chunk) { multiply_q<decltype(chunk)>(k, in_pages, all); });
    }
    if (all != in_tail) multiply_q<KvChunk<KvCode::i4_columns>>(k, in_pages, all & ~in_tail);
    if (in_tail != 0) add_tail_scores(in_tail);
  }

  __device__ void add_tail_scores(unsigned in_tail) {
    const KvHead tail(p_.k_tail, kv_head_);
    const int page = p_.tails[sequence_];
    // A page begins with a group.
    const auto place = [&](int at) {
      return KvPlace{page, step_.places[at].row % static_cast<int>(kKvGroup)};
    };
    switch (p_.k_tail.code) {
      case KvCode::f32: return multiply_q<KvChunk<KvCode::f32>>(tail, place, in_tail);
      case KvCode::f16: return multiply_q<KvChunk<KvCode::f16>>(tail, place, in_tail);
      default: return multiply_q<KvChunk<KvCode::bf16>>(tail, place, in_tail);
    }
  }

  // Products of q and the keys whose slots are in `mask`. The loads of several keys are on their
  // way before the first is used.
  template <class Chunk, class Place>
  __device__ void multiply_q(const KvHead& k, const Place& place, unsigned mask) {
    const int row_lanes = lanes_ / kRows;
    const int row = chunk_ / row_lanes;
    const bool is_writer = chunk_ % row_lanes == 0;
    KvColumnScales column_scales;
    for (int turn = 0; turn < lanes_; turn += kKeysInFlight) {
      if (slots_of(mask, turn) == 0) continue;
      Chunk chunks[kKeysInFlight];
      TESSERA_UNROLL
      for (int u = 0; u < kKeysInFlight; ++u) {
        const int at = slot(turn + u);
        if ((mask >> at & 1u) != 0) chunks[u].load(k, place(at), columns_);
      }
      float elements[kKeysInFlight][kChunk];
      TESSERA_UNROLL
      for (int u = 0; u < kKeysInFlight; ++u) {
        chunks[u].to_floats(k, elements[u]);
        if constexpr (std::is_same_v<Chunk, KvChunk<KvCode::i4_columns>>) {
          const int at = slot(turn + u);
          if ((mask >> at & 1u) != 0) column_scales.hold(k, place(at), columns_);
          column_scales.apply(elements[u]);
        }
      }
      float sums[kKeysInFlight][kRows];
      TESSERA_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float4 low = queries_.halves[r][0][chunk_], high = queries_.halves[r][1][chunk_];
        TESSERA_UNROLL
        for (int u = 0; u < kKeysInFlight; ++u) sums[u][r] = dot(low, high, elements[u]);
      }
      TESSERA_UNROLL
      for (int u = 0; u < kKeysInFlight; ++u) {
        const int at = slot(turn + u);
        const float sum = sum_over_lanes(sums[u], lane_, lanes_);
        if (is_writer && (mask >> at & 1u) != 0) step_.scores[at][row] = sum;
      }
    }
  }

  __device__ static float dot(float4 low, float4 high, const float (&x)[kChunk]) {
    float sum = low.x * x[0];
    sum = fmaf(low.y, x[1], sum);
    sum = fmaf(low.z, x[2], sum);
    sum = fmaf(low.w, x[3], sum);
    sum = fmaf(high.x, x[4], sum);
    sum = fmaf(high.y, x[5], sum);
    sum = fmaf(high.z, x[6], sum);
    return fmaf(high.w, x[7], sum);
  }

  // A lane has one key, its scores by row. What is summed already shrinks where a maximum grows.
  __device__ void take_weights(int key, unsigned seen) {
    ScoreRule<T> rule(p_.scores);
    float* scores = step_.scores[lane_];
    TESSERA_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float score = -INFINITY;
      if ((seen >> r & 1u) != 0) {
        rule.slope = rows_[r].slope;
        score = rule(scores[r], rows_[r].position - key);
      }
      const float shrink = softmax_[r].raise(tile::warp_reduce<tile::Max>(score), kLog2e);
      const float weight = softmax_weight(score, kLog2e, softmax_[r].offset(kLog2e));
      softmax_[r].sum += weight;
      scores[r] = weight;
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) o_[r][i] *= shrink;
    }
  }

  // Values of the keys whose slots are in `mask`. A row that does not see a key has the weight 0
  // for it, and the value, whatever it is, is not met.
  template <class Chunk>
  __device__ void add_values(const KvHead& v, unsigned mask) {
    for (int turn = 0; turn < lanes_; turn += kKeysInFlight) {
      if (slots_of(mask, turn) == 0) continue;
      Chunk chunks[kKeysInFlight];
      TESSERA_UNROLL
      for (int u = 0; u < kKeysInFlight; ++u) {
        const int at = slot(turn + u);
        if ((mask >> at & 1u) != 0) chunks[u].load(v, step_.places[at], columns_);
      }
      TESSERA_UNROLL
      for (int u = 0; u < kKeysInFlight; ++u) {
        float elements[kChunk];
        chunks[u].to_floats(v, elements);
        float weights[kRows];
        load_weights(slot(turn + u), weights);
        TESSERA_UNROLL
        for (int r = 0; r < kRows; ++r) {
          if (weights[r] == 0.0f) continue;
          TESSERA_UNROLL
          for (int i = 0; i < kChunk; ++i) o_[r][i] = fmaf(weights[r], elements[i], o_[r][i]);
        }
      }
    }
  }

  __device__ void load_weights(int at, float (&weights)[kRows]) const {
    TESSERA_UNROLL
    for (int r = 0; r < kRows; r += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&step_.scores[at][r]);
      weights[r] = four.x;
      weights[r + 1] = four.y;
      weights[r + 2] = four.z;
      weights[r + 3] = four.w;
    }
  }

  const DecodeParams& p_;
  const DecodeKeys& keys_;
  const Queries& queries_;
  const DecodeRow (&rows_)[kRows];
  Step& step_;
  int sequence_;
  int kv_head_;
  int lane_;
  int lanes_;  // that share a key
  int chunk_;  // of a row: this lane's
  KvColumns columns_;
  SoftmaxRow softmax_[kRows];  // the maximum is the warp's, the sum this lane's
  float o_[kRows][kChunk] = {};
};

}  // namespace tessera::kernels
