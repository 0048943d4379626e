// The forward pass over every kind of KV cache: chunking changes nothing, and decoding comes close.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/model/runner.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

using Logits = std::vector<std::vector<float>>;

constexpr size_t kPrompt = 100;

std::vector<int32_t> prompt_of(int32_t seed, size_t count = kPrompt) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) {
    tokens.push_back((seed + static_cast<int32_t>(i) * 131 + static_cast<int32_t>(i * i) * 7) %
                     4000);
  }
  return tokens;
}

Runner make_runner(DType dtype, KvFormat type) {
  static dist::LocalCommunicator local;
  const model::ModelConfig config = model::load_config(bundled_model());
  const model::Checkpoint checkpoint = model::Checkpoint::open(bundled_model());
  return Runner(load_model(checkpoint, config, {.dtype = dtype}), local, 96, type);
}

// The logits of every position, computed in chunks of these sizes, the last size repeated. A second
// sequence is chunked beside it, so that a step has several chunks.
Logits logits_in_chunks(Runner& runner, const std::vector<size_t>& sizes, bool is_prompt = true) {
  const std::vector<int32_t> tokens = prompt_of(3), others = prompt_of(77, 400);
  Sequence sequence, other;
  other.tail = 1;
  Logits rows;
  size_t begin = 0, other_begin = 0;
  for (size_t i = 0; begin < tokens.size(); ++i) {
    const size_t size = std::min(sizes[std::min(i, sizes.size() - 1)], tokens.size() - begin);
    std::vector<Chunk> chunks = {{&sequence,
                                  {tokens.begin() + static_cast<int64_t>(begin),
                                   tokens.begin() + static_cast<int64_t>(begin + size)},
                                  true,
                                  is_prompt}};
    const size_t other_size = std::min<size_t>(37, others.size() - other_begin);
    if (other_size > 0) {
      chunks.push_back({&other,
                        {others.begin() + static_cast<int64_t>(other_begin),
                         others.begin() + static_cast<int64_t>(other_begin + other_size)},
                        false,
                        true});
    }
    const TensorView logits = runner.step(chunks);
    for (size_t row = 0; row < size; ++row) {
      rows.push_back(row_of(logits, static_cast<int64_t>(row)));
    }
    begin += size;
    other_begin += other_size;
  }
  runner.release(sequence);
  runner.release(other);
  return rows;
}

double root_mean_square_difference(const Logits& a, const Logits& b) {
  double sum = 0.0, count = 0.0;
  for (size_t row = 0; row < a.size(); ++row) {
    for (size_t i = 0; i < a[row].size(); ++i) {
      const double difference = double{a[row][i]} - double{b[row][i]};
      sum += difference * difference;
      count += 1.0;
    }
  }
  return std::sqrt(sum / count);
}

class KvTypes : public ::testing::TestWithParam<KvFormat> {};

TEST_P(KvTypes, LogitsDoNotDependOnHowThePromptIsChunked) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name(dtype));
    Runner runner = make_runner(dtype, GetParam());
    const Logits whole = logits_in_chunks(runner, {kPrompt});
    ASSERT_EQ(whole.size(), kPrompt);
    for (const std::vector<size_t>& sizes :
         {std::vector<size_t>{32}, std::vector<size_t>{7}, std::vector<size_t>{1},
          std::vector<size_t>{31, 1, 1, 40, 27}, std::vector<size_t>{5, 90}}) {
      EXPECT_EQ(logits_in_chunks(runner, sizes), whole) << "first chunk of " << sizes.front();
    }
  }
}

// attention_decode reads the quantised cache itself; prefill reads its values rounded to the
// model's type. In f32 the two differ by rounding only, but that can change a code in a later
// layer, and from there the difference is as large as quantisation noise: at most half of what
// quantisation itself changes. A plain cache has no such noise.
TEST_P(KvTypes, DecodingTheTokensComesCloserToThePrefillThanAPlainCacheDoes) {
  Runner plain = make_runner(DType::f32, KvFormat::plain);
  Runner coded = make_runner(DType::f32, GetParam());
  const Logits whole = logits_in_chunks(coded, {kPrompt});
  const double by_decoding =
      root_mean_square_difference(logits_in_chunks(coded, {1}, false), whole);
  const double by_codes = root_mean_square_difference(logits_in_chunks(plain, {kPrompt}), whole);
  SCOPED_TRACE(::testing::Message() << "by decoding " << by_decoding << ", by codes " << by_codes);
  const bool has_4_bits = GetParam() == KvFormat::int4 || GetParam() == KvFormat::int4_token;
  EXPECT_LT(by_codes, has_4_bits ? 1.0 : 0.5) << "of logits of the order of 5";
  EXPECT_EQ(by_codes == 0.0, GetParam() == KvFormat::plain);
  EXPECT_LE(by_decoding, 0.5 * by_codes);
}

INSTANTIATE_TEST_SUITE_P(All, KvTypes, ::testing::ValuesIn(kAllKvFormats),
                         [](const auto& test) { return std::string(name(test.param)); });

}  // namespace
}  // namespace tessera::testing
