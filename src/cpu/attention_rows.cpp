// Vectorised attention for some rows of queries, a block of keys at a time.
// SPDX-License-Identifier: MIT
//
//   o = sum_j w_j v_j / sum_j w_j,  w_j = 2^(x_j - m),  m = max_j x_j      over the keys j seen
//
// Work      An item's rows share a KV head. For each block of keys: unpack K transposed and V plain
//           as floats, from pages in any format; then scores, weights and values of all rows.
// Order     A score is one chain of multiply-adds over head_dim; an element of o is one chain over
//           the keys seen, in order; m and the sums of weights move block by block. None of it
//           depends on which rows share a tile, so a row has the same bits whatever the others are.
// Vectors   Scores lie along the keys, outputs along head_dim: nothing is summed across lanes but
//           the weights, once, in a fixed tree.
#include "cpu/attention_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/core/convert.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_rows.cpp"
#include "hwy/foreach_target.h"  // must precede highway.h
#include "hwy/highway.h"
#include "cpu/attention_block.h"  // of this instruction set: after both
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace tessera::cpu::HWY_NAMESPACE {
namespace {

// Computes one item in its scratch memory.
template <class T>
class Rows {
 public:
  Rows(const AttentionParams& params, const AttentionItem& item, float* scratch)
      : p_(params),
        item_(item),
        padded_dim_((params.head_dim + kSumLanes - 1) / kSumLanes * kSumLanes),
        state_stride_(padded_dim_ + kSumLanes),
        k_(params.k, item.k_table, params.page_size, item.kv_head, params.head_dim),
        v_(params.v, item.v_table, params.page_size, item.kv_head, params.head_dim) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(scratch);
    scratch += (64 - address % 64) % 64 / sizeof(float);
    keys_ = scratch;
    key_rows_ = keys_ + padded_dim_ * kKeyBlock;
    values_ = key_rows_ + kKeyBlock * padded_dim_;
    factors_ = values_ + kKeyBlock * padded_dim_;
    weights_ = factors_ + 2 * padded_dim_;
    states_ = weights_ + kRowsPerItem * kKeyBlock;
    queries_ = states_ + kRowsPerItem * state_stride_;
    maxima_ = queries_ + kRowsPerItem * params.head_dim;
  }

  void attend() {
    load_queries();
    const int64_t end = positions_[item_.num_rows - 1] + 1;
    const int64_t begin = first_seen(positions_[0]);
    for (int64_t block = begin / kKeyBlock * kKeyBlock; block < end; block += kKeyBlock) {
      read_block(block, {std::max(block, begin) - block, std::min(block + kKeyBlock, end) - block},
                 end);
      for (int64_t row = 0; row < item_.num_rows; row += kTileRows) score_tile(row, block);
      for (int64_t row = 0; row < item_.num_rows; ++row) weigh(row, range(row, block));
      for (int64_t row = 0; row < item_.num_rows; row += kTileRows) add_values(row, block);
    }
    for (int64_t row = 0; row < item_.num_rows; ++row) finish(row);
  }

 private:
  int64_t token(int64_t row) const { return (item_.first_row + row) / p_.heads_per_kv; }
  int64_t head(int64_t row) const {
    return item_.kv_head * p_.heads_per_kv + (item_.first_row + row) % p_.heads_per_kv;
  }
  int64_t first_seen(int64_t position) const {
    return p_.window == 0 ? 0 : std::max<int64_t>(0, position - p_.window + 1);
  }
  KeyRange range(int64_t row, int64_t block) const {
    const int64_t at = positions_[row];
    const int64_t begin = std::clamp<int64_t>(first_seen(at) - block, 0, kKeyBlock);
    return {begin, std::clamp<int64_t>(at + 1 - block, begin, kKeyBlock)};
  }

  void load_queries();
  void read_block(int64_t block, KeyRange keys, int64_t end);
  void read_tail(int64_t block, KeyRange keys);
  void score_tile(int64_t first, int64_t block);
  void weigh(int64_t row, KeyRange keys);
  Vector score_of(Vector product) const;
  void add_values(int64_t first, int64_t block);
  void add_values_of(int64_t row, int64_t num_rows, KeyRange keys);
  void finish(int64_t row);

  const AttentionParams& p_;
  const AttentionItem& item_;
  int64_t padded_dim_;
  int64_t state_stride_;
  PagedRows k_;
  PagedRows v_;
  float* keys_;      // [padded_dim, 64]: the block's keys, transposed; unseen columns are stale
  float* key_rows_;  // [64, padded_dim]: the same before; unseen rows are stale
  float* values_;    // [64, padded_dim]; unseen rows are stale
  float* factors_;   // [2, padded_dim]: scales and lows of columns
  float* weights_;   // [rows, 64]: scores, then weights
  float* states_;    // [rows, padded_dim + 16]: unnormalised o, then partial sums of weights
  float* queries_;   // [rows, head_dim]
  float* maxima_;    // [rows]
  int64_t positions_[kRowsPerItem];
};

template <class T>
void Rows<T>::load_queries() {
  for (int64_t row = 0; row < item_.num_rows; ++row) {
    const T* q = static_cast<const T*>(p_.q) + item_.q_begin + token(row) * p_.q_token_stride +
                 head(row) * p_.q_head_stride;
    for (int64_t i = 0; i < p_.head_dim; ++i) queries_[row * p_.head_dim + i] = to_float(q[i]);
    maxima_[row] = kLowest;
    positions_[row] = item_.first_position + token(row);
  }
  std::memset(states_, 0, static_cast<size_t>(item_.num_rows * state_stride_) * sizeof(float));
}

// Reads these keys of the block and their values, and nothing else of the pages; the item's keys
// end at position `end`.
template <class T>
void Rows<T>::read_block(int64_t block, KeyRange keys, int64_t end) {
  k_.enter(block, keys.begin, end);
  v_.enter(block, keys.begin, end);
  const int64_t in_pages = std::clamp(item_.tail_begin - block, keys.begin, keys.end);
  k_.read({keys.begin, in_pages}, key_rows_, padded_dim_, factors_);
  if (in_pages < keys.end) read_tail(block, {in_pages, keys.end});
  v_.read(keys, values_, padded_dim_, factors_);
  transpose(key_rows_, padded_dim_, keys.begin, keys.end, keys_);
}

// Keys at tail_begin and later: a page of 32 rows, whose positions count from there.
template <class T>
void Rows<T>::read_tail(int64_t block, KeyRange keys) {
  const int64_t shift = block - item_.tail_begin;
  PagedRows tail(p_.tail, &item_.tail, kKvGroup, item_.kv_head, p_.head_dim);
  tail.enter(shift, keys.begin, shift + keys.end);
  tail.read(keys, key_rows_, padded_dim_, factors_);
}

// q . k for a tile of rows and every vector of keys that some row sees part of.
template <class T>
void Rows<T>::score_tile(int64_t first, int64_t block) {
  const int64_t num_rows = std::min<int64_t>(kTileRows, item_.num_rows - first);
  const int64_t begin = range(first, block).begin / kLanes;
  const int64_t end = (range(first + num_rows - 1, block).end + kLanes - 1) / kLanes;
  if (begin >= end) return;
  kMultiplyRows[num_rows - 1](queries_ + first * p_.head_dim, p_.head_dim, keys_ + begin * kLanes,
                              kKeyBlock, p_.head_dim, weights_ + first * kKeyBlock + begin * kLanes,
                              kKeyBlock, end - begin, true);
}

template <class T>
Vector Rows<T>::score_of(Vector product) const {
  const Vector x = hn::Mul(product, hn::Set(kFloats, p_.factor));
  if (p_.cap_log2 == 0.0f) return x;
  // tanh(y) = (1 - e) / (1 + e) with e = exp(-2 |y|), and x is 2 y log2(e).
  const Vector one = hn::Set(kFloats, 1.0f);
  const Vector e = exp2_of(hn::Neg(hn::Abs(x)));
  const Vector t = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), x);
  return hn::Mul(t, hn::Set(kFloats, p_.cap_log2));
}

// Turns products into weights and updates the row's maximum and sums.
template <class T>
void Rows<T>::weigh(int64_t row, KeyRange keys) {
  if (keys.begin >= keys.end) return;
  float* weights = weights_ + row * kKeyBlock;
  const Vector lowest = hn::Set(kFloats, kLowest);
  const int64_t first = keys.begin / kLanes;
  const int64_t last = (keys.end + kLanes - 1) / kLanes;
  Vector highest = lowest;
  for (int64_t v = first; v < last; ++v) {
    Vector x = score_of(hn::LoadU(kFloats, weights + v * kLanes));
    const int64_t below = std::max<int64_t>(keys.begin - v * kLanes, 0);
    const int64_t seen = std::min(keys.end - v * kLanes, kLanes);
    x = hn::IfThenElse(hn::FirstN(kFloats, static_cast<size_t>(seen)), x, lowest);
    x = hn::IfThenElse(hn::FirstN(kFloats, static_cast<size_t>(below)), lowest, x);
    hn::StoreU(x, kFloats, weights + v * kLanes);
    highest = hn::Max(highest, x);
  }
  const float block_maximum = hn::GetLane(hn::MaxOfLanes(kFloats, highest));
  const float before = maxima_[row];
  const float maximum = block_maximum > before ? block_maximum : before;
  maxima_[row] = maximum;
  // If every score is minus infinity, the weights are 0, not NaN.
  const Vector shift = hn::Set(kFloats, maximum == kLowest ? 0.0f : maximum);
  float* state = states_ + row * state_stride_;
  if (maximum != before) {
    const Vector decay = exp2_of(hn::Sub(hn::Set(kFloats, before), shift));
    for (int64_t i = 0; i < state_stride_; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(kFloats, state + i), decay), kFloats, state + i);
    }
  }
  float* sums = state + padded_dim_;
  constexpr int64_t kVectorsOfSums = kSumLanes / kLanes;
  for (int64_t part = 0; part < kVectorsOfSums; ++part) {
    Vector sum = hn::LoadU(kFloats, sums + part * kLanes);
    for (int64_t v = part; v < last; v += kVectorsOfSums) {
      if (v < first) continue;
      const Vector w = exp2_of(hn::Sub(hn::LoadU(kFloats, weights + v * kLanes), shift));
      hn::StoreU(w, kFloats, weights + v * kLanes);
      sum = hn::Add(sum, w);
    }
    hn::StoreU(sum, kFloats, sums + part * kLanes);
  }
}

template <class T>
void Rows<T>::add_values_of(int64_t row, int64_t num_rows, KeyRange keys) {
  if (keys.begin >= keys.end) return;
  kMultiplyRows[num_rows - 1](weights_ + row * kKeyBlock + keys.begin, kKeyBlock,
                              values_ + keys.begin * padded_dim_, padded_dim_,
                              keys.end - keys.begin, states_ + row * state_stride_, state_stride_,
                              padded_dim_ / kLanes, false);
}

// A row adds only values that it sees: a weight of 0 would still propagate NaN. Keys that all rows
// of the tile see are processed together, those before and after row by row.
template <class T>
void Rows<T>::add_values(int64_t first, int64_t block) {
  const int64_t num_rows = std::min<int64_t>(kTileRows, item_.num_rows - first);
  const KeyRange head = range(first, block), tail = range(first + num_rows - 1, block);
  // Ranges only move up from row to row.
  const KeyRange all = {tail.begin, std::max(tail.begin, head.end)};
  for (int64_t row = first; row < first + num_rows; ++row) {
    const KeyRange keys = range(row, block);
    add_values_of(row, 1, {keys.begin, std::min(keys.end, all.begin)});
  }
  add_values_of(first, num_rows, all);
  for (int64_t row = first; row < first + num_rows; ++row) {
    const KeyRange keys = range(row, block);
    add_values_of(row, 1, {std::max(keys.begin, all.end), keys.end});
  }
}

template <class T>
void Rows<T>::finish(int64_t row) {
  float* state = states_ + row * state_stride_;
  float* sums = state + padded_dim_;
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  const float sum = sums[0];
  T* out = static_cast<T*>(p_.out) + item_.out_begin + token(row) * p_.out_token_stride +
           head(row) * p_.out_head_stride;
  if (sum == 0.0f) {
    std::memset(out, 0, static_cast<size_t>(p_.head_dim) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < p_.head_dim; ++i) out[i] = from_float<T>(state[i] / sum);
}

}  // namespace

void attend(const AttentionParams& params, const AttentionItem& item, float* scratch) {
  switch (params.dtype) {
    case DType::f16: return Rows<F16>(params, item, scratch).attend();
    case DType::bf16: return Rows<Bf16>(params, item, scratch).attend();
    default: return Rows<float>(params, item, scratch).attend();
  }
}

void exp2_all(float* x, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    float part[kSumLanes] = {};
    const size_t bytes = static_cast<size_t>(std::min(kLanes, count - i)) * sizeof(float);
    std::memcpy(part, x + i, bytes);
    hn::StoreU(exp2_of(hn::LoadU(kFloats, part)), kFloats, part);
    std::memcpy(x + i, part, bytes);
  }
}

}  // namespace tessera::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::cpu {

int64_t attention_scratch_floats(int64_t head_dim) {
  const int64_t padded_dim = (head_dim + kSumLanes - 1) / kSumLanes * kSumLanes;
  const int64_t of_block = 3 * kKeyBlock * padded_dim + 2 * padded_dim;
  const int64_t of_row = kKeyBlock + padded_dim + kSumLanes + head_dim + 1;
  return of_block + kRowsPerItem * of_row + 16;  // 16: room to align to a cache line
}

SimdBuilds<void(const AttentionParams&, const AttentionItem&, float*)> attend_builds() {
  return {HWY_STATIC_DISPATCH(attend), HWY_CHOOSE_AVX2(attend), HWY_CHOOSE_AVX3(attend)};
}

SimdBuilds<void(float*, int64_t)> exp2_builds() {
  return {HWY_STATIC_DISPATCH(exp2_all), HWY_CHOOSE_AVX2(exp2_all), HWY_CHOOSE_AVX3(exp2_all)};
}

}  // namespace tessera::cpu
#endif  // HWY_ONCE
