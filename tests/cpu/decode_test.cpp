// Decode attention on the CPU in every format and with every option, against plain loops.
// SPDX-License-Identifier: MIT
#include "cpu/attention.h"
#include "tests/cpu/kv_case.h"

namespace tessera::testing {
namespace {

constexpr int64_t kGroup = 3;  // query heads that share keys
constexpr int64_t kHeads = KvCase::kHeads * kGroup;

// What a query sees and how its scores are computed, in the form the reference loops use.
struct Rules {
  double softcap = 0.0;
  Values sinks = {}, slopes = {};
  std::function<bool(int64_t s, int64_t i, int64_t position, int64_t key)> sees = {};
};

struct Result {
  Values out, lse;
};

// From keys and values as they were gathered, token by token.
Result attend(const KvCase& c, const KvCase::Gathered& kv, const std::vector<int>& lengths,
              const Values& q, int64_t q_len, const Rules& rules) {
  const Values k = values_of(kv.k), v = values_of(kv.v);
  constexpr int64_t kDim = KvCase::kDim;
  const auto batch = static_cast<int64_t>(lengths.size());
  Result result{Values(q.size(), 0.0), Values(static_cast<size_t>(batch * kHeads * q_len))};
  for (int64_t s = 0; s < batch; ++s) {
    const int64_t length = lengths[static_cast<size_t>(s)];
    for (int64_t i = 0; i < q_len; ++i) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const auto q_at = static_cast<size_t>(((s * q_len + i) * kHeads + h) * kDim);
        const int64_t position = length - q_len + i;
        const double sink = rules.sinks.empty() ? -kInfinity : rules.sinks[static_cast<size_t>(h)];
        double sum = std::exp(sink);
        for (int64_t j = 0; j < length; ++j) {
          if (!rules.sees(s, i, position, j)) continue;
          const auto at =
              static_cast<size_t>(((c.start(s) + j) * KvCase::kHeads + h / kGroup) * kDim);
          double score = 0.0;
          for (size_t e = 0; e < kDim; ++e) score += q[q_at + e] * k[at + e];
          score /= std::sqrt(static_cast<double>(kDim));
          if (rules.softcap > 0.0) score = rules.softcap * std::tanh(score / rules.softcap);
          if (!rules.slopes.empty()) {
            score -=
                rules.slopes[static_cast<size_t>(h)] * static_cast<double>(std::abs(position - j));
          }
          const double weight = std::exp(score);
          sum += weight;
          for (size_t e = 0; e < kDim; ++e) result.out[q_at + e] += weight * v[at + e];
        }
        for (size_t e = 0; e < kDim; ++e) result.out[q_at + e] /= sum > 0.0 ? sum : 1.0;
        result.lse[static_cast<size_t>((s * kHeads + h) * q_len + i)] = std::log(sum);
      }
    }
  }
  return result;
}

// Every element may err by a few float roundings of the largest one.
void expect_close(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      ASSERT_EQ(got[i], want[i]) << i;
    } else {
      ASSERT_NEAR(got[i], want[i], 1e-6 * (1.0 + std::fabs(want[i]))) << i;
    }
  }
}

class CpuDecodeFormat : public ::testing::TestWithParam<KvCaseFormat> {};

TEST_P(CpuDecodeFormat, AttendsToWhatGatherGives) {
  const std::vector<int> lengths = {100, 0, 4, 64, 65, 190};
  const KvCase c(GetParam(), lengths);
  c.append(0, 200);
  const KvCase::Gathered kv = c.gather();
  for (const int64_t q_len : {1, 4}) {
    Tensor q(DType::f32, {6, q_len, kHeads, KvCase::kDim}),
        out(DType::f32, {6, q_len, kHeads, KvCase::kDim});
    Tensor lse(DType::f32, {6, kHeads, q_len});
    fill_normal(q, 9);
    cpu::attention_decode({.q = q, .kv = c.kv(), .out = out, .lse = lse});
    const Result want = attend(
        c, kv, lengths, values_of(q), q_len,
        {.sees = [](int64_t, int64_t, int64_t position, int64_t j) { return j <= position; }});
    expect_close(values_of(out), want.out);
    expect_close(values_of(lse), want.lse);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, CpuDecodeFormat, ::testing::ValuesIn(kKvFormats),
                         kv_format_name);

class CpuDecode : public ::testing::Test {
 protected:
  static constexpr int64_t kQueries = 3;
  const std::vector<int> lengths_ = {100, 3, 64, 190};
  const KvCase c_{kKvFormats[0], lengths_};
  Tensor q_{DType::f32, {4, kQueries, kHeads, KvCase::kDim}};
  Tensor out_{DType::f32, {4, kQueries, kHeads, KvCase::kDim}};
  Tensor lse_{DType::f32, {4, kHeads, kQueries}};

  CpuDecode() {
    c_.append(0, 200);
    fill_normal(q_, 9);
  }
  DecodeAttentionArgs args() const { return {.q = q_, .kv = c_.kv(), .out = out_, .lse = lse_}; }
  void expect(const DecodeAttentionArgs& args, const Rules& rules) {
    cpu::attention_decode(args);
    const Result want = attend(c_, c_.gather(), lengths_, values_of(q_), kQueries, rules);
    expect_close(values_of(out_), want.out);
    expect_close(values_of(lse_), want.lse);
  }
};

bool is_causal(int64_t, int64_t, int64_t position, int64_t key) { return key <= position; }

TEST_F(CpuDecode, ScoresSinksAndWindows) {
  Values sinks, slopes;
  for (int64_t h = 0; h < kHeads; ++h) {
    sinks.push_back(0.5 * static_cast<double>(h) - 1.0);
    slopes.push_back(0.0625 * static_cast<double>(h));
  }
  const Tensor sink_tensor = tensor_of(DType::f32, {kHeads}, sinks);
  const Tensor slope_tensor = tensor_of(DType::f32, {kHeads}, slopes);
  DecodeAttentionArgs a = args();
  a.softcap = 2.0f;
  expect(a, {.softcap = 2.0, .sees = is_causal});
  a.sinks = sink_tensor;
  expect(a, {.softcap = 2.0, .sinks = sinks, .sees = is_causal});
  a.alibi_slopes = slope_tensor;
  a.window = 40;
  expect(a, {.softcap = 2.0,
             .sinks = sinks,
             .slopes = slopes,
             .sees = [](int64_t, int64_t, int64_t p, int64_t j) { return j <= p && j > p - 40; }});
}

TEST_F(CpuDecode, ATreeSaysWhichNewTokensSeeEachOther) {
  // Token 1 and token 2 are both children of token 0.
  const Values words = {1, 3, 5, 1, 3, 5, 1, 3, 5, 1, 3, 5};
  const Tensor tree = tensor_of(DType::i32, {4, kQueries}, words);
  DecodeAttentionArgs a = args();
  a.tree = tree;
  expect(a, {.sees = [&](int64_t s, int64_t i, int64_t p, int64_t j) {
           const int64_t first_new = p - i;
           if (j < first_new) return true;
           const auto word = static_cast<uint32_t>(words[static_cast<size_t>(s * kQueries + i)]);
           return j < first_new + kQueries && (word >> (j - first_new) & 1u) != 0;
         }});
}

TEST_F(CpuDecode, ListsOfBlocksAndOfKeys) {
  const Tensor blocks = tensor_of(DType::i32, {4, 2}, {1, 0, 0, 0, 0, 0, 2, 0});
  const Tensor num_blocks = tensor_of(DType::i32, {4}, {1, 1, 0, 2});
  const std::vector<std::vector<int64_t>> listed = {{1}, {0}, {}, {2, 0}};
  DecodeAttentionArgs a = args();
  a.blocks = blocks, a.num_blocks = num_blocks;
  const auto in_blocks = [&](int64_t s, int64_t, int64_t p, int64_t j) {
    const auto& list = listed[static_cast<size_t>(s)];
    return j <= p && std::find(list.begin(), list.end(), j / KvCase::kPageSize) != list.end();
  };
  expect(a, {.sees = in_blocks});

  Tensor keys(DType::i32, {4, kQueries, 5}), num_keys(DType::i32, {4, kQueries});
  std::mt19937_64 random(4);
  for (int64_t list = 0; list < 4 * kQueries; ++list) {
    const int64_t length = lengths_[static_cast<size_t>(list / kQueries)];
    std::vector<int32_t> all(static_cast<size_t>(length));
    for (size_t j = 0; j < all.size(); ++j) all[j] = static_cast<int32_t>(j);
    std::shuffle(all.begin(), all.end(), random);
    const int64_t count = std::min<int64_t>(list % 6, length);
    num_keys.view().as<int32_t>()[list] = static_cast<int32_t>(count);
    std::copy_n(all.begin(), count, keys.view().as<int32_t>() + 5 * list);
  }
  const auto in_keys = [&](int64_t s, int64_t i, int64_t p, int64_t j) {
    const int64_t list = s * kQueries + i;
    const int32_t* first = keys.view().as<int32_t>() + 5 * list;
    const int32_t* last = first + num_keys.view().as<int32_t>()[list];
    return j <= p && std::find(first, last, static_cast<int32_t>(j)) != last;
  };
  DecodeAttentionArgs b = args();
  b.keys = keys, b.num_keys = num_keys;
  expect(b, {.sees = in_keys});
  a.keys = keys, a.num_keys = num_keys;
  expect(a, {.sees = [&](int64_t s, int64_t i, int64_t p, int64_t j) {
           return in_blocks(s, i, p, j) && in_keys(s, i, p, j);
         }});
}

TEST_F(CpuDecode, ACacheInOnePieceNeedsNoTable) {
  const KvCase::Gathered kv = c_.gather();
  Tensor k(DType::f32, {4, 200, KvCase::kHeads, KvCase::kDim});
  Tensor v(DType::f32, {4, 200, KvCase::kHeads, KvCase::kDim});
  for (const Tensor* rows : {&k, &v}) fill(*rows, [] { return kNan; });  // beyond the lengths
  constexpr int64_t kRow = KvCase::kHeads * KvCase::kDim;
  for (int64_t s = 0; s < 4; ++s) {
    const auto count = lengths_[static_cast<size_t>(s)] * kRow;
    std::copy_n(kv.k.view().as<float>() + c_.start(s) * kRow, count,
                k.view().as<float>() + s * 200 * kRow);
    std::copy_n(kv.v.view().as<float>() + c_.start(s) * kRow, count,
                v.view().as<float>() + s * 200 * kRow);
  }
  DecodeAttentionArgs a = args();
  a.kv = {.k_pages = k, .v_pages = v, .page_table = {}, .seq_lens = c_.kv().seq_lens};
  expect(a, {.sees = is_causal});
}

// The lists of an idle slot are not read.
TEST(CpuDecodeIdleSlot, GivesZerosWhateverIsListed) {
  const KvCase c(kKvFormats[0], {0});
  Tensor q(DType::f32, {1, 1, kHeads, KvCase::kDim}), out(DType::f32, {1, 1, kHeads, KvCase::kDim});
  fill_normal(q, 9), fill_normal(out, 8);
  const Tensor lists = tensor_of(DType::i32, {1, 2}, {1 << 20, 1 << 28});
  const Tensor keys = tensor_of(DType::i32, {1, 1, 2}, {1 << 20, 1 << 28});
  const Tensor counts = tensor_of(DType::i32, {1}, {2}),
               key_counts = tensor_of(DType::i32, {1, 1}, {2});
  cpu::attention_decode({.q = q,
                         .kv = c.kv(),
                         .out = out,
                         .blocks = lists,
                         .num_blocks = counts,
                         .keys = keys,
                         .num_keys = key_counts});
  for (const double value : values_of(out)) EXPECT_EQ(value, 0.0);
}

}  // namespace
}  // namespace tessera::testing
