// A warp of the portable decode kernel: a tile of rows against 32 keys at a time, which it reads in
// any format.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/portable/params.h"
#include "kernels/attention/scores.cuh"
#include "kernels/attention/softmax.cuh"
#include "tile/convert.cuh"
#include "tile/reduce.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels::decode_portable {

inline constexpr int kChunk = 8;  // elements a lane holds of a row

// One head of keys, or of values.
struct KvHead {
  const uint8_t* data;  // row 0 of page 0
  int64_t page_bytes;
  int64_t row_bytes;
  const uint16_t* scales;  // of row 0 of page 0, by row or column; null: none
  int64_t scale_page;
  int64_t scale_row;
  int64_t scale_column;
  float scale;  // of the whole head
  bool has_vectors;

  __device__ KvHead(const KvSource& s, int head)
      : data(s.data + head * s.head_bytes),
        page_bytes(s.page_bytes),
        row_bytes(s.row_bytes),
        scales(nullptr),
        scale_page(s.scale_page),
        scale_row(s.scale_row),
        scale_column(s.scale_column),
        scale(1.0f),
        has_vectors(s.has_vectors) {
    if (s.scales == nullptr) return;
    if (s.scale_kind == KvScales::head) {
      scale = static_cast<const float*>(s.scales)[head * s.scale_head];
    } else {
      scales = static_cast<const uint16_t*>(s.scales) + head * s.scale_head;
    }
  }
};

// The page and row of a token.
struct KvPlace {
  int page;
  int row;
};

// Which elements of a row a lane holds.
struct KvColumns {
  int first;
  int count;  // at most kChunk; not above 0: none
};

__device__ __forceinline__ float half_at(const uint16_t* at) {
  return tile::to_float(F16{__ldg(at)});
}

// Product and sum, each rounded, as the CPU does.
__device__ __forceinline__ float scaled(float code, float scale, float low) {
  return __fadd_rn(__fmul_rn(code, scale), low);
}

// Unsigned integers below 2^23 are the low bits of a float of 2^23 and more: a subtraction replaces
// a conversion, which has a lower throughput.
inline constexpr uint32_t kIntegerBits = 0x4b000000u;
inline constexpr float kIntegerOffset = 8388608.0f;
__device__ __forceinline__ float byte_to_float(uint32_t word, int idx) {
  const uint32_t selector = 0x7540u + static_cast<uint32_t>(idx);
  return __uint_as_float(__byte_perm(word, kIntegerBits, selector)) - kIntegerOffset;
}
__device__ __forceinline__ float nibble_to_float(uint32_t word, int idx) {
  return __uint_as_float((word >> (4 * idx) & 15u) | kIntegerBits) - kIntegerOffset;
}

// How codes become floats before they are scaled.
template <class Element>
struct FloatCode {
  using Stored = Element;
  static constexpr int kStored = kChunk;  // elements of Stored in a chunk
  __device__ static void to_floats(const tile::Vec<Element, kChunk>& raw, float (&out)[kChunk]) {
    raw.to_floats(out);
  }
};
template <bool kIsSigned>
struct ByteCode {
  using Stored = uint8_t;
  static constexpr int kStored = kChunk;
  __device__ static void to_floats(const tile::Vec<uint8_t, kChunk>& raw, float (&out)[kChunk]) {
    uint32_t words[2];
    memcpy(words, raw.values, sizeof(words));
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      const uint32_t word = kIsSigned ? words[i / 4] ^ 0x80808080u : words[i / 4];
      out[i] = byte_to_float(word, i % 4) - (kIsSigned ? 128.0f : 0.0f);
    }
  }
};
struct NibbleCode {
  using Stored = uint8_t;
  static constexpr int kStored = kChunk / 2;
  __device__ static void to_floats(const tile::Vec<uint8_t, kChunk / 2>& raw,
                                   float (&out)[kChunk]) {
    uint32_t word;
    memcpy(&word, raw.values, sizeof(word));
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) out[i] = nibble_to_float(word, i);
  }
};

template <KvFormat kFormat, class Plain>
struct CodeOf;
template <class Plain>
struct CodeOf<KvFormat::plain, Plain> : FloatCode<Plain> {};
template <class Plain>
struct CodeOf<KvFormat::e4m3, Plain> : FloatCode<E4m3> {};
template <class Plain>
struct CodeOf<KvFormat::e5m2, Plain> : FloatCode<E5m2> {};
template <class Plain>
struct CodeOf<KvFormat::int8, Plain> : ByteCode<true> {};
template <class Plain>
struct CodeOf<KvFormat::uint8, Plain> : ByteCode<false> {};
template <class Plain>
struct CodeOf<KvFormat::int4, Plain> : NibbleCode {};
template <class Plain>
struct CodeOf<KvFormat::int4_token, Plain> : NibbleCode {};

// Scales and lows of a lane's columns, kept while rows are of one group.
class KvColumnScales {
 public:
  __device__ void hold(const KvHead& head, KvPlace place, KvColumns columns) {
    const int group = place.row / static_cast<int>(kKvGroup);
    if (place.page == page_ && group == group_) return;
    page_ = place.page;
    group_ = group;
    const uint16_t* at = head.scales + place.page * head.scale_page + group * head.scale_row +
                         columns.first * head.scale_column;
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      if (i >= columns.count) continue;
      scales_[i] = __ldg(at + i * head.scale_column);
      lows_[i] = __ldg(at + i * head.scale_column + 1);
    }
  }
  __device__ void apply(float (&codes)[kChunk]) const {
    TESSERA_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      codes[i] = scaled(codes[i], tile::to_float(F16{scales_[i]}), tile::to_float(F16{lows_[i]}));
    }
  }

 private:
  int page_ = -1;
  int group_ = -1;
  uint16_t scales_[kChunk] = {};
  uint16_t lows_[kChunk] = {};
};

// A lane's part of a row. It is loaded as stored and converted later, so that several loads are in
// flight at once. `Plain` is the type of plain pages.
template <KvFormat kFormat_, class Plain>
class KvChunk {
  using Code = CodeOf<kFormat_, Plain>;
  using Raw = tile::Vec<typename Code::Stored, Code::kStored>;
  static constexpr KvFormatTraits kTraits = traits(kFormat_);
  static constexpr bool kHasRowScale = kTraits.scales == KvScales::row;

 public:
  static constexpr KvFormat kFormat = kFormat_;

  __device__ void load(const KvHead& head, KvPlace place, KvColumns columns) {
    if (columns.count <= 0) return;
    const uint8_t* row = head.data + place.page * head.page_bytes + place.row * head.row_bytes;
    constexpr int kBytes = sizeof(typename Code::Stored) * Code::kStored;
    const auto* at = reinterpret_cast<const typename Code::Stored*>(
        row + static_cast<int64_t>(columns.first / kChunk) * kBytes);
    if (head.has_vectors) {
      raw_ = Raw::load(at);
    } else {
      raw_ = Raw::load_part(at, (columns.count * Code::kStored + kChunk - 1) / kChunk);
    }
    if constexpr (kHasRowScale) {
      const uint16_t* scale =
          head.scales + place.page * head.scale_page + place.row * head.scale_row;
      scale_ = half_at(scale);
      if constexpr (kTraits.has_low) low_ = half_at(scale + 1);
    }
  }

  __device__ void to_floats(const KvHead& head, float (&out)[kChunk]) const {
    Code::to_floats(raw_, out);
    if constexpr (kHasRowScale) {
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) {
        out[i] = kTraits.has_low ? scaled(out[i], scale_, low_) : out[i] * scale_;
      }
    } else if constexpr (kTraits.scales == KvScales::head) {
      TESSERA_UNROLL
      for (int i = 0; i < kChunk; ++i) out[i] *= head.scale;
    }
  }

 private:
  Raw raw_ = {};
  float scale_ = 0.0f;
  float low_ = 0.0f;
};

// One row of a tile: a query in one head.
struct DecodeRow {
  int query;
  int head;
  int position;   // of the query; below any key if the row does not exist
  uint32_t tree;  // which of the newest tokens it sees, if there is a tree
  float slope;    // of ALiBi; 0: none
};

// The keys that a tile of rows visits, and which row sees which. Without lists the n-th is key n;
// with lists it is the n-th listed key, or none.
class DecodeKeys {
 public:
  // The tile has queries `first` to `last`; with listed keys it has one query.
  __device__ DecodeKeys(const DecodeParams& p, int sequence, int first, int last)
      : p_(p),
        sequence_(sequence),
        first_query_(first),
        last_query_(last),
        length_(max(0, min(p.seq_lens[sequence], p.capacity))) {
    if (p.has_keys && length_ > 0) {
      const int count = p.num_keys[sequence * p.rows.q_len + first];
      num_keys_ = max(0, min(count, p.max_keys));
      keys_ = p.keys + sequence * p.key_batch + first * p.key_row;
    }
    if (p.has_blocks && length_ > 0) {
      // Each block is listed once.
      const int all = (length_ - 1) / p.page_size + 1;
      num_blocks_ = max(0, min(min(p.num_blocks[sequence], p.max_blocks), all));
      blocks_ = p.blocks + sequence * p.block_stride;
    }
  }

  __device__ int length() const { return length_; }
  // The first of the newest tokens.
  __device__ int first_new() const { return length_ - p_.rows.q_len; }
  __device__ int position(int query) const { return first_new() + query; }

  __device__ DecodeKeyCut cut() const {
    const int most = p_.rows.most_pieces();
    if (p_.has_keys) return cut_keys(0, num_keys_, most);
    if (p_.has_blocks) return cut_keys(0, num_blocks_ * p_.page_size, most);
    const int begin = max(0, position(first_query_) - p_.window + 1);
    return cut_keys(begin, p_.tree != nullptr ? length_ : position(last_query_) + 1, most);
  }

  // Key n, or -1 if there is none.
  __device__ int at(int n) const {
    int key = n;
    if (p_.has_keys) {
      key = keys_[n];
    } else if (p_.has_blocks) {
      const int block = n / p_.page_size;
      key = blocks_[block] * p_.page_size + (n - block * p_.page_size);
    }
    if (key < 0 || key >= length_) return -1;
    return p_.has_keys && p_.has_blocks && !has_block(key / p_.page_size) ? -1 : key;
  }

  __device__ bool sees(const DecodeRow& row, int key) const {
    if (key <= row.position - p_.window) return false;
    if (p_.tree == nullptr || key < first_new()) return key <= row.position;
    return (row.tree >> (key - first_new()) & 1u) != 0;
  }

  // Whether a key is read from the tail: those of the newest token's group are.
  __device__ bool is_in_tail(int key) const {
    constexpr int kGroup = static_cast<int>(kKvGroup);
    return p_.tails != nullptr && key / kGroup == (length_ - 1) / kGroup;
  }

 private:
  __device__ bool has_block(int block) const {
    for (int i = 0; i < num_blocks_; ++i) {
      if (blocks_[i] == block) return true;
    }
    return false;
  }

  const DecodeParams& p_;
  int sequence_;
  int first_query_;
  int last_query_;
  int length_;
  int num_keys_ = 0;
  int num_blocks_ = 0;
  const int32_t* keys_ = nullptr;
  const int32_t* blocks_ = nullptr;
};

// The states of a block's warps, one per row.
template <int kRows>
struct DecodeStates {
  float max[kDecodeWarps][kRows];
  float sum[kDecodeWarps][kRows];
  float o[kDecodeWarps][kRows][kDecodeMostDim];
};

inline constexpr int kMostChunks = kDecodeMostDim / kChunk;
inline constexpr int kKeysInFlight = 4;  // per lane

// The queries of a tile. The two halves of a chunk lie apart, so that neighbouring lanes read
// neighbouring 16 bytes. Zeros beyond head_dim and in rows that do not exist.
template <int kRows>
struct DecodeQueries {
  float4 halves[kRows][2][kMostChunks];

  __device__ void set(int row, int column, float value) {
    const int in_chunk = column % kChunk;
    float* half = &halves[row][in_chunk / 4][column / kChunk].x;
    half[in_chunk % 4] = value;
  }
};
// What the lanes of one warp exchange during a step of 32 keys.
template <int kRows>
struct DecodeStepShared {
  alignas(16) float scores[kDecodeStepKeys][kRows];  // products of q and k, then weights
  KvPlace places[kDecodeStepKeys];
};

// Sums each of kRows values over `lanes` neighbouring lanes, a power of two of at least kRows.
// Lanes exchange half of their values at a time until each has one: the sum of row (lane % lanes) /
// (lanes / kRows).
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

// Calls f(KvChunk<format, T>) for the formats that have no tail.
template <class T, class F>
__device__ __forceinline__ void with_kv_format(KvFormat format, F&& f) {
  switch (format) {
    case KvFormat::e4m3: return f(KvChunk<KvFormat::e4m3, T>{});
    case KvFormat::e5m2: return f(KvChunk<KvFormat::e5m2, T>{});
    case KvFormat::int8: return f(KvChunk<KvFormat::int8, T>{});
    case KvFormat::uint8: return f(KvChunk<KvFormat::uint8, T>{});
    case KvFormat::int4_token: return f(KvChunk<KvFormat::int4_token, T>{});
    default: return f(KvChunk<KvFormat::plain, T>{});
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

  // Processes keys `first` to first + 31 that are below `end`.
  __device__ void meet(int first, int end) {
    const int n = first + lane_;
    const int key = n < end ? keys_.at(n) : -1;
    const unsigned seen = key >= 0 ? rows_that_see(key) : 0;
    const unsigned all = __ballot_sync(~0u, seen != 0);
    if (all == 0) return;
    const unsigned in_tail = __ballot_sync(~0u, seen != 0 && keys_.is_in_tail(key));
    __syncwarp();  // the previous step's scores have been read
    if (seen != 0) step_.places[lane_] = place_of(key);
    __syncwarp();
    add_scores(all, in_tail);
    __syncwarp();
    take_weights(key, seen);
    __syncwarp();
    const KvHead v(p_.v, kv_head_);
    with_kv_format<T>(p_.v.format, [&](auto chunk) { add_values<decltype(chunk)>(v, all); });
  }

  // After all keys: lanes with the same columns have processed different keys.
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
  // A bit per row.
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

  // In turn t of a step, 32 / lanes keys are processed at once: this lane's.
  __device__ int slot(int turn) const { return (turn * 32 + lane_) / lanes_; }
  // The bits of kKeysInFlight turns from `turn` on.
  __device__ unsigned slots_of(unsigned mask, int turn) const {
    const int keys = 32 / lanes_;
    return mask >> (turn * keys) & ((1u << (kKeysInFlight * keys)) - 1u);
  }

  __device__ void add_scores(unsigned all, unsigned in_tail) {
    const KvHead k(p_.k, kv_head_);
    const auto in_pages = [&](int at) { return step_.places[at]; };
    if (p_.k.format != KvFormat::int4) {
      return with_kv_format<T>(p_.k.format,
                               [&](auto chunk) { multiply_q<decltype(chunk)>(k, in_pages, all); });
    }
    if (all != in_tail) multiply_q<KvChunk<KvFormat::int4, T>>(k, in_pages, all & ~in_tail);
    if (in_tail != 0) add_tail_scores(in_tail);
  }

  __device__ void add_tail_scores(unsigned in_tail) {
    const KvHead tail(p_.k_tail, kv_head_);
    const int page = p_.tails[sequence_];
    // A page begins with a group.
    const auto place = [&](int at) {
      return KvPlace{page, step_.places[at].row % static_cast<int>(kKvGroup)};
    };
    switch (p_.k_tail.dtype) {
      case DType::f32: return multiply_q<KvChunk<KvFormat::plain, float>>(tail, place, in_tail);
      case DType::f16: return multiply_q<KvChunk<KvFormat::plain, F16>>(tail, place, in_tail);
      default: return multiply_q<KvChunk<KvFormat::plain, Bf16>>(tail, place, in_tail);
    }
  }

  // Products of q and the keys whose slots are in `mask`. Several keys are in flight before the
  // first is used.
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
        if constexpr (Chunk::kFormat == KvFormat::int4) {
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

  // Each lane handles one key and its scores for all rows. The sums are rescaled where a maximum
  // grows.
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

  // Adds the values of the keys whose slots are in `mask`. A row that does not see a key has weight
  // 0 for it and skips the value, which may be NaN.
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
  int chunk_;  // this lane's, of a row
  KvColumns columns_;
  SoftmaxRow softmax_[kRows];  // the maximum is the warp's, the sum this lane's
  float o_[kRows][kChunk] = {};
};

}  // namespace tessera::kernels::decode_portable
