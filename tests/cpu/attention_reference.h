// Attention by its definition, in float64 and independent of layout: a problem is a list of
// sequences, a mask is a predicate. attention_layout.h lays the same problem out in tensors.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "core/philox.h"
#include "tessera/ops/attention.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {

struct Lengths {
  int64_t q, kv;
};

// One query, as a mask sees it.
struct Query {
  int64_t sequence, index, position;
};

// One mask in two forms: as arguments and as a predicate.
struct MaskCase {
  std::string_view name;
  int64_t left = -1, right = -1;
  std::vector<std::array<int32_t, 2>> (*intervals)(const Query&) = nullptr;
  int64_t num_intervals = 0;
  bool (*sees)(const Query&, int64_t key) = [](const Query&, int64_t) { return true; };
};

inline constexpr int64_t kDocument = 13;
inline constexpr int64_t kPrefix = 20;
inline constexpr int32_t kFar = std::numeric_limits<int32_t>::max();
inline const std::vector<MaskCase> kMaskCases = {
    {.name = "full"},
    {.name = "causal",
     .right = 0,
     .sees = [](const Query& q, int64_t key) { return key <= q.position; }},
    {.name = "left window",
     .left = 7,
     .sees = [](const Query& q, int64_t key) { return key >= q.position - 7; }},
    {.name = "right window",
     .right = 5,
     .sees = [](const Query& q, int64_t key) { return key <= q.position + 5; }},
    {.name = "both windows",
     .left = 3,
     .right = 66,
     .sees = [](const Query& q,
                int64_t key) { return key >= q.position - 3 && key <= q.position + 66; }},
    {.name = "sliding",
     .left = 9,
     .right = 0,
     .sees = [](const Query& q,
                int64_t key) { return key >= q.position - 9 && key <= q.position; }},
    {.name = "bounds beyond any length",
     .left = std::numeric_limits<int64_t>::max(),
     .right = int64_t{1} << 40},
    {.name = "documents",
     .intervals = [](const Query& q) -> std::vector<std::array<int32_t, 2>> {
       const int32_t begin = static_cast<int32_t>(q.position / kDocument * kDocument);
       if (q.position < 0) return {{5, 2}};
       return {{begin, begin + static_cast<int32_t>(kDocument)}};
     },
     .num_intervals = 1,
     .sees =
         [](const Query& q, int64_t key) {
           return q.position >= 0 && key / kDocument == q.position / kDocument;
         }},
    {.name = "prefix",
     .intervals = [](const Query& q) -> std::vector<std::array<int32_t, 2>> {
       return {{0, kPrefix}, {0, static_cast<int32_t>(q.position + 1)}};
     },
     .num_intervals = 2,
     .sees = [](const Query& q, int64_t key) { return key < kPrefix || key <= q.position; }},
    {.name = "first keys and a window",
     .right = 0,
     .intervals = [](const Query& q) -> std::vector<std::array<int32_t, 2>> {
       return {{static_cast<int32_t>(q.position - 6), kFar}, {-kFar, 4}};
     },
     .num_intervals = 2,
     .sees = [](const Query& q,
                int64_t key) { return key <= q.position && (key < 4 || key >= q.position - 6); }},
    {.name = "every other query",
     .intervals = [](const Query& q) -> std::vector<std::array<int32_t, 2>> {
       return {{0, q.position % 2 == 0 ? kFar : 0}};
     },
     .num_intervals = 1,
     .sees = [](const Query& q, int64_t) { return q.position % 2 == 0; }},
    {.name = "nothing",
     .intervals = [](const Query&) -> std::vector<std::array<int32_t, 2>> {
       return {{kFar, -kFar}, {-5, -2}};
     },
     .num_intervals = 2,
     .sees = [](const Query&, int64_t) { return false; }}};

inline const MaskCase& mask_case(std::string_view name) {
  return *std::find_if(kMaskCases.begin(), kMaskCases.end(),
                       [name](const MaskCase& mask) { return mask.name == name; });
}

struct AttentionProblem {
  DType dtype = DType::f32;
  DType out_dtype = DType::f32;
  int64_t num_heads = 4, num_kv_heads = 2, d_k = 16, d_v = 16;
  std::vector<Lengths> lengths;
  MaskCase mask = mask_case("full");
  double spread = 1.0;
  float scale = 0.0f, softcap = 0.0f;
  bool has_sinks = false, has_slopes = false, has_scales = false;
  AttentionDropout dropout = {};

  int64_t batch() const { return static_cast<int64_t>(lengths.size()); }
  Query query(int64_t s, int64_t i) const {
    const Lengths& length = lengths[static_cast<size_t>(s)];
    return {s, i, i + length.kv - length.q};
  }
};

// The numbers of a problem, each exact in its type.
struct AttentionData {
  explicit AttentionData(const AttentionProblem& p, uint64_t seed = 1)
      : sinks(DType::f32, {p.num_heads}),
        slopes(DType::f32, {p.num_heads}),
        q_scale(DType::f32, {p.batch(), p.num_kv_heads}),
        k_scale(DType::f32, {p.batch(), p.num_kv_heads}),
        v_scale(DType::f32, {p.batch(), p.num_kv_heads}) {
    for (const Lengths& length : p.lengths) {
      q.emplace_back(p.dtype, Index{length.q, p.num_heads, p.d_k});
      k.emplace_back(p.dtype, Index{length.kv, p.num_kv_heads, p.d_k});
      v.emplace_back(p.dtype, Index{length.kv, p.num_kv_heads, p.d_v});
      fill_normal(q.back(), seed++, p.spread);
      fill_normal(k.back(), seed++, p.spread);
      fill_normal(v.back(), seed++);
    }
    fill_normal(sinks, seed++);
    for (const Tensor* tensor : {&slopes, &q_scale, &k_scale, &v_scale}) {
      std::mt19937_64 random(seed++);
      std::uniform_real_distribution<double> positive(0.1, 1.5);
      fill(*tensor, [&] { return positive(random); });
    }
  }
  std::vector<Tensor> q, k, v;  // [tokens, heads, d] of each sequence
  Tensor sinks, slopes;         // [num_heads]
  Tensor q_scale, k_scale, v_scale;
};

// In the order of sequences, queries, heads and elements.
struct AttentionResult {
  Values out, lse;
  Values sizes;  // like out: the weighted mean of the values' magnitudes, for bounds
};

namespace reference {

inline bool is_dropped(const AttentionDropout& dropout, const Query& query, int64_t head,
                       int64_t key) {
  const auto word = [](int64_t value) { return static_cast<uint32_t>(value); };
  const PhiloxWords words = philox(
      {{word(key / 4), word(query.position), word(head), word(query.sequence)}}, dropout.seed);
  return words.words[key % 4] < word(static_cast<int64_t>(dropout.rate * 0x1p32));
}

// One query and head.
inline void append_row(const AttentionProblem& p, const AttentionData& data, const Query& query,
                       int64_t head, AttentionResult& result) {
  const size_t s = static_cast<size_t>(query.sequence);
  const int64_t g = head / (p.num_heads / p.num_kv_heads);
  const auto scale_of = [&](const Tensor& scale) {
    return p.has_scales ? double{load_as_float(scale, Index{query.sequence, g})} : 1.0;
  };
  const double scale = p.scale != 0.0f ? p.scale : 1.0 / std::sqrt(static_cast<double>(p.d_k));
  std::vector<int64_t> keys;
  Values scores;
  for (int64_t key = 0; key < p.lengths[s].kv; ++key) {
    if (!p.mask.sees(query, key)) continue;
    double product = 0.0;
    for (int64_t i = 0; i < p.d_k; ++i) {
      product += double{load_as_float(data.q[s], Index{query.index, head, i})} *
                 double{load_as_float(data.k[s], Index{key, g, i})};
    }
    double score = scale * scale_of(data.q_scale) * scale_of(data.k_scale) * product;
    if (p.softcap != 0.0f) score = p.softcap * std::tanh(score / p.softcap);
    if (p.has_slopes) {
      score -= double{load_as_float(data.slopes, Index{head})} *
               std::fabs(static_cast<double>(query.position - key));
    }
    keys.push_back(key);
    scores.push_back(score);
  }
  Values all = scores;
  if (p.has_sinks) all.push_back(load_as_float(data.sinks, Index{head}));
  const double maximum = all.empty() ? 0.0 : *std::max_element(all.begin(), all.end());
  double sum = 0.0;
  for (double score : all) sum += std::exp(score - maximum);
  result.lse.push_back(all.empty() ? -kInfinity : maximum + std::log(sum));
  for (int64_t i = 0; i < p.d_v; ++i) {
    double out = 0.0, size = 0.0;
    for (size_t j = 0; j < keys.size(); ++j) {
      if (p.dropout.rate > 0.0f && is_dropped(p.dropout, query, head, keys[j])) continue;
      const double weight = std::exp(scores[j] - maximum) / sum / (1.0 - p.dropout.rate);
      const double value =
          scale_of(data.v_scale) * double{load_as_float(data.v[s], Index{keys[j], g, i})};
      out += weight * value;
      size += weight * std::fabs(value);
    }
    result.out.push_back(out);
    result.sizes.push_back(size);
  }
}

}  // namespace reference

inline AttentionResult attend_by_definition(const AttentionProblem& p, const AttentionData& data) {
  AttentionResult result;
  for (int64_t s = 0; s < p.batch(); ++s) {
    for (int64_t i = 0; i < p.lengths[static_cast<size_t>(s)].q; ++i) {
      for (int64_t head = 0; head < p.num_heads; ++head) {
        reference::append_row(p, data, p.query(s, i), head, result);
      }
    }
  }
  return result;
}

}  // namespace tessera::testing
