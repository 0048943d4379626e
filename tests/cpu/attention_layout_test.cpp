// Attention on the CPU in every layout, under every mask and option, against its definition.
// SPDX-License-Identifier: MIT
#include "tests/cpu/attention_layout.h"

#include "tessera/core/error.h"

namespace tessera::testing {
namespace {

// Queries of one length, keys of any: fewer than queries, none, one, and around a block's edges.
const std::vector<Lengths> kEven = {{9, 9}, {9, 130}, {9, 1}, {9, 0}, {9, 65}, {9, 64}};
const std::vector<Lengths> kRagged = {{0, 5}, {1, 1},    {63, 63}, {64, 64}, {65, 65}, {1, 65},
                                      {0, 0}, {65, 130}, {3, 0},   {5, 2},   {2, 64},  {1, 129}};

// The double path rounds to float and then to the type of out. Its own error is about 1e-13 of the
// visible values, for scores of up to a thousand.
void expect_close_out(const LaidOutAttention& laid_out, const AttentionProblem& problem,
                      const AttentionResult& want, double float_error = 0.0) {
  Values bound;
  for (size_t i = 0; i < want.out.size(); ++i) {
    const double before = (1.01 * kFloatUnit + float_error) * std::fabs(want.out[i]) +
                          (1e-11 + float_error) * want.sizes[i];
    bound.push_back(rounded_once(problem.out_dtype, want.out[i], before));
  }
  EXPECT_TRUE(all_close(laid_out.out(), want.out, bound));
}

void expect_close(const LaidOutAttention& laid_out, const AttentionProblem& problem,
                  const AttentionResult& want) {
  expect_close_out(laid_out, problem, want);
  Values bound;
  for (double lse : want.lse) {
    bound.push_back(std::isinf(lse) ? 0.0 : rounded_once(DType::f32, lse, 1e-11));
  }
  EXPECT_TRUE(all_close(laid_out.lse(), want.lse, bound)) << "lse";
}

bool takes(const Layout& layout, const AttentionProblem& problem) {
  const auto is_first = [&](const Lengths& length) { return length.q == problem.lengths[0].q; };
  return layout.is_ragged || std::all_of(problem.lengths.begin(), problem.lengths.end(), is_first);
}

// In every layout that has room for the lengths.
void expect_close(const AttentionProblem& problem, const AttentionData& data) {
  const AttentionResult want = attend_by_definition(problem, data);
  for (const Layout& layout : kLayouts) {
    if (!takes(layout, problem)) continue;
    SCOPED_TRACE(layout.name);
    const LaidOutAttention laid_out(problem, data, layout);
    cpu::attention_prefill(laid_out.args());
    expect_close(laid_out, problem, want);
  }
}
void expect_close(const AttentionProblem& problem) {
  expect_close(problem, AttentionData(problem));
}

TEST(CpuAttentionLayout, EveryMaskInEveryLayout) {
  for (const MaskCase& mask : kMaskCases) {
    for (const auto& lengths : {kEven, kRagged}) {
      SCOPED_TRACE(mask.name);
      expect_close({.lengths = lengths, .mask = mask});
    }
  }
}

TEST(CpuAttentionLayout, EveryTypeAndHeadShape) {
  struct Heads {
    int64_t num_heads, num_kv_heads, d_k, d_v;
  };
  const std::vector<Lengths> lengths = {{5, 5}, {5, 70}};
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3}) {
    for (const Heads& heads : {Heads{4, 4, 64, 64}, Heads{6, 2, 128, 128}, Heads{8, 1, 32, 64},
                               Heads{2, 1, 192, 128}, Heads{3, 3, 5, 7}, Heads{70, 1, 1, 1}}) {
      SCOPED_TRACE(::testing::Message() << name(dtype) << " " << heads.num_heads << " heads of "
                                        << heads.d_k << " and " << heads.d_v);
      expect_close({.dtype = dtype,
                    .out_dtype = dtype == DType::e4m3 ? DType::bf16 : dtype,
                    .num_heads = heads.num_heads,
                    .num_kv_heads = heads.num_kv_heads,
                    .d_k = heads.d_k,
                    .d_v = heads.d_v,
                    .lengths = lengths,
                    .mask = mask_case("causal")});
    }
  }
}

// Alone and together.
TEST(CpuAttentionLayout, EveryOption) {
  std::vector<AttentionProblem> problems(8, {.lengths = kEven, .mask = mask_case("causal")});
  problems[1].scale = 0.7f;
  problems[2].softcap = 2.0f;
  problems[3].has_sinks = true;
  problems[4].has_slopes = true;
  problems[5].dropout = {.rate = 0.3f, .seed = 0x123456789abcdef};
  problems[6] = {.dtype = DType::e4m3,
                 .out_dtype = DType::f16,
                 .lengths = kEven,
                 .mask = mask_case("full"),
                 .has_scales = true};
  problems[7] = {.dtype = DType::e4m3,
                 .out_dtype = DType::bf16,
                 .num_heads = 6,
                 .num_kv_heads = 2,
                 .d_k = 24,
                 .lengths = kEven,
                 .mask = mask_case("prefix"),
                 .scale = 0.3f,
                 .softcap = 5.0f,
                 .has_sinks = true,
                 .has_slopes = true,
                 .has_scales = true,
                 .dropout = {.rate = 0.5f, .seed = 3}};
  for (size_t i = 0; i < problems.size(); ++i) {
    SCOPED_TRACE(i);
    expect_close(problems[i]);
    problems[i].lengths = kRagged;
    expect_close(problems[i]);
  }
}

TEST(CpuAttentionLayout, EveryPageSizeWithOneTableAndTwo) {
  const AttentionProblem problem{.lengths = {{300, 300}, {4, 257}, {1, 256}, {0, 255}},
                                 .mask = mask_case("first keys and a window")};
  const AttentionData data(problem);
  const AttentionResult want = attend_by_definition(problem, data);
  for (int64_t page_size : {1, 7, 16, 32, 64, 128, 256}) {
    for (bool has_v_table : {false, true}) {
      SCOPED_TRACE(::testing::Message() << page_size << (has_v_table ? ", two tables" : ""));
      const LaidOutAttention laid_out(problem, data, {"", true, page_size, has_v_table});
      cpu::attention_prefill(laid_out.args());
      expect_close(laid_out, problem, want);
    }
  }
}

// Scores of some thousands, where one key takes all the weight.
TEST(CpuAttentionLayout, LargeLogits) {
  for (DType dtype : kFloatTypes) {
    AttentionProblem problem{
        .dtype = dtype, .out_dtype = dtype, .lengths = kEven, .spread = 40.0, .scale = 1.0f};
    expect_close(problem);
    problem.softcap = 30.0f;
    problem.has_sinks = true;
    expect_close(problem);
  }
}

TEST(CpuAttentionLayout, OneHugeKeyTakesTheQueriesThatSeeIt) {
  const AttentionProblem problem{.lengths = {{70, 70}}, .mask = mask_case("causal")};
  const AttentionData data(problem);
  fill(data.q[0], [] { return 1.0; });
  fill(data.k[0].view().slice(0, 33, 34), [] { return 1e30; });
  const LaidOutAttention laid_out(problem, data, kLayouts[1]);
  cpu::attention_prefill(laid_out.args());
  const Values out = laid_out.out(), lse = laid_out.lse();
  const size_t row = 4 * 16;  // heads of one query
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << i;
    if (i < 33 * row) continue;
    const int64_t head = static_cast<int64_t>(i % row / 16);
    ASSERT_EQ(out[i], load_as_float(data.v[0], Index{33, head / 2, static_cast<int64_t>(i % 16)}));
  }
  EXPECT_FLOAT_EQ(static_cast<float>(lse.back()), 4e30f);  // 16 * 1e30 / sqrt(16)
}

// A query whose scores are all minus infinity behaves as if it had no keys; NaN and infinity show
// in the output.
TEST(CpuAttentionLayout, ScoresThatAreNotFinite) {
  const AttentionProblem problem{.lengths = {{3, 3}}, .mask = mask_case("full")};
  for (double key : {-kInfinity, kInfinity, kNan}) {
    const AttentionData data(problem);
    fill(data.q[0], [] { return 1.0; });
    fill(data.k[0], [key] { return key; });
    const LaidOutAttention laid_out(problem, data, kLayouts[0]);
    cpu::attention_prefill(laid_out.args());
    const bool is_low = key == -kInfinity;
    EXPECT_TRUE(all_equal(laid_out.out(), Values(3 * 4 * 16, is_low ? 0.0 : kNan))) << key;
    EXPECT_TRUE(all_equal(laid_out.lse(), Values(3 * 4, is_low ? -kInfinity : kNan))) << key;
  }
}

TEST(CpuAttentionLayout, AQueryThatSeesNothingGivesZerosAndItsSink) {
  for (bool has_sinks : {false, true}) {
    const AttentionProblem problem{.dtype = DType::bf16,
                                   .out_dtype = DType::bf16,
                                   .lengths = kEven,
                                   .mask = mask_case("nothing"),
                                   .has_sinks = has_sinks};
    const AttentionData data(problem);
    for (const Layout& layout : kLayouts) {
      const LaidOutAttention laid_out(problem, data, layout);
      cpu::attention_prefill(laid_out.args());
      const Values out = laid_out.out();
      EXPECT_TRUE(all_equal(out, Values(out.size(), 0.0))) << layout.name;
      Values sinks = values_of(data.sinks), want;
      if (!has_sinks) sinks.assign(4, -kInfinity);
      while (want.size() < out.size() / 16) want.insert(want.end(), sinks.begin(), sinks.end());
      EXPECT_TRUE(all_equal(laid_out.lse(), want)) << layout.name;
    }
  }
}

TEST(CpuAttentionLayout, NoSequencesNoQueriesAndNoKeysAreFine) {
  for (const std::vector<Lengths>& lengths :
       {std::vector<Lengths>{}, {{0, 0}}, {{0, 5}, {0, 3}}, {{3, 0}}}) {
    expect_close({.lengths = lengths, .mask = mask_case("prefix"), .has_sinks = true});
    expect_close({.lengths = lengths, .mask = mask_case("causal")});
  }
}

TEST(CpuAttentionLayout, TheOutputMayBeTheQuery) {
  const AttentionProblem problem{.lengths = kRagged, .mask = mask_case("documents")};
  const AttentionData data(problem);
  const LaidOutAttention laid_out(problem, data, kLayouts[1]);
  cpu::attention_prefill(laid_out.args());
  AttentionArgs in_place = laid_out.args();
  in_place.out = in_place.q;
  cpu::attention_prefill(in_place);
  EXPECT_TRUE(all_equal(values_of(in_place.q), values_of(laid_out.args().out)));
}

// Compares the SIMD path with the double path on problems that both take. The SIMD path errs by
// about (d_k + 2) 2^-24 of a score's terms, 1e-5 here, plus 2 n 2^-24 in the sums.
TEST(CpuAttentionByVectors, AgreesWithTheWayInDouble) {
  for (DType dtype : kFloatTypes) {
    for (std::string_view mask : {"causal", "sliding"}) {
      for (float softcap : {0.0f, 4.0f}) {
        for (const auto& lengths : {kEven, kRagged}) {
          const AttentionProblem problem{.dtype = dtype,
                                         .out_dtype = dtype,
                                         .lengths = lengths,
                                         .mask = mask_case(mask),
                                         .softcap = softcap};
          const AttentionData data(problem);
          const AttentionResult want = attend_by_definition(problem, data);
          for (const Layout& layout : kLayouts) {
            if (layout.page_size == 0 || !takes(layout, problem)) continue;
            SCOPED_TRACE(::testing::Message()
                         << name(dtype) << ", " << mask << ", " << layout.name);
            LaidOutAttention laid_out(problem, data, layout);
            AttentionArgs args = laid_out.args();
            args.lse = {};
            ASSERT_TRUE(cpu::runs_by_vectors(args));
            for (cpu::SimdLevel level : cpu::simd_levels()) {
              fill(args.out, [] { return kNan; });
              cpu::attention_prefill(args, level);
              expect_close_out(laid_out, problem, want, 3e-5);
            }
            fill(args.out, [] { return kNan; });
            cpu::attention_in_double(args);
            expect_close_out(laid_out, problem, want);
          }
        }
      }
    }
  }
}

TEST(CpuAttentionByVectors, IsLeftForWhatItCannotDo) {
  AttentionProblem problem{.lengths = kEven, .mask = mask_case("causal")};
  const AttentionData data(problem);
  const LaidOutAttention laid_out(problem, data, kLayouts[2]);
  AttentionArgs good = laid_out.args();
  good.lse = {};
  const TensorView some = data.sinks;
  const std::vector<std::function<void(AttentionArgs&)>> changes = {
      [&](AttentionArgs& a) { a.lse = laid_out.args().lse; },
      [&](AttentionArgs& a) { a.sinks = some; },
      [&](AttentionArgs& a) { a.alibi_slopes = some; },
      [&](AttentionArgs& a) { a.dropout.rate = 0.1f; },
      [&](AttentionArgs& a) { a.mask.right = 1; },
      [&](AttentionArgs& a) { a.mask.right = -1; },
      [&](AttentionArgs& a) { a.mask.intervals.rank = 4; },
      [&](AttentionArgs& a) { a.v = a.v.slice(-1, 0, 8); },
      [&](AttentionArgs& a) { a.k_page_table = {}; },
      [&](AttentionArgs& a) { a.q.dtype = DType::e4m3; }};
  EXPECT_TRUE(cpu::runs_by_vectors(good));
  for (size_t i = 0; i < changes.size(); ++i) {
    AttentionArgs changed = good;
    changes[i](changed);
    EXPECT_FALSE(cpu::runs_by_vectors(changed)) << i;
  }
}

}  // namespace
}  // namespace tessera::testing
