// Keys and values that are not finite: what every cache format returns, and what attention computes
// from it.
// SPDX-License-Identifier: MIT
#include <cmath>

#include "cpu/attention.h"
#include "tests/cpu/kv_case.h"

namespace tessera::testing {
namespace {

constexpr int64_t kRow = KvCase::kHeads * KvCase::kDim;
constexpr int64_t kBadToken = 40, kBadHead = 1, kBadColumn = 5;  // of the first of two sequences

class NotFinite : public ::testing::TestWithParam<std::tuple<KvCaseFormat, double>> {
 protected:
  KvCaseFormat format() const { return std::get<0>(GetParam()); }
  float bad() const { return static_cast<float>(std::get<1>(GetParam())); }
  bool is_plain() const { return format().dtype == DType::f32; }
  bool is_fp8() const { return format().dtype == DType::e4m3 || format().dtype == DType::e5m2; }

  // Two sequences, with one element of the first that is not finite.
  KvCase make(bool is_key) const {
    KvCase c(format(), {100, 70});
    const TensorView rows = is_key ? c.new_k() : c.new_v();
    rows.as<float>()[kBadToken * kRow + kBadHead * KvCase::kDim + kBadColumn] = bad();
    c.append(0, 200);
    return c;
  }

  // Whether an element shares a code or a scale with the bad one.
  bool is_tainted(int64_t element, bool by_column) const {
    const int64_t token = element / kRow, head = element / KvCase::kDim % KvCase::kHeads;
    const int64_t column = element % KvCase::kDim;
    if (head != kBadHead) return false;
    if (by_column) return token / kKvGroup == kBadToken / kKvGroup && column == kBadColumn;
    if (is_plain() || is_fp8()) return token == kBadToken && column == kBadColumn;
    return token == kBadToken;
  }

  // What each element of the output must be.
  void expect_tainted(const Values& out, bool is_key) const {
    for (int64_t i = 0; i < 4 * KvCase::kHeads * KvCase::kDim; ++i) {
      const int64_t head = i / KvCase::kDim % (2 * KvCase::kHeads) / 2, column = i % KvCase::kDim;
      const bool sees = i / KvCase::kDim < 2 * KvCase::kHeads && head == kBadHead;
      const bool is_bad = sees && (is_key || !(is_plain() || is_fp8()) || column == kBadColumn);
      ASSERT_EQ(!std::isfinite(out[static_cast<size_t>(i)]), is_bad)
          << (is_key ? "key " : "value ") << i;
    }
  }
};

TEST_P(NotFinite, ComesBackAsNanWithAllThatSharesItsScale) {
  for (const bool is_key : {true, false}) {
    const KvCase c = make(is_key);
    const KvCase::Gathered out = c.gather();
    const Values k = values_of(out.k), v = values_of(out.v);
    for (size_t i = 0; i < k.size(); ++i) {
      const auto element = static_cast<int64_t>(i);
      const bool k_is_bad = is_key && is_tainted(element, format().is_by_column);
      const bool v_is_bad = !is_key && is_tainted(element, false);
      ASSERT_EQ(!std::isfinite(k[i]), k_is_bad) << "key " << i;
      ASSERT_EQ(!std::isfinite(v[i]), v_is_bad) << "value " << i;
      if (!is_plain() && (k_is_bad || v_is_bad)) {
        ASSERT_TRUE(std::isnan(is_key ? k[i] : v[i])) << i;
      }
    }
  }
}

TEST_P(NotFinite, ReachesEveryQueryThatSeesIt) {
  for (const bool is_key : {true, false}) {
    // In a plain cache a score of minus infinity is valid, and its key simply has no weight.
    if (is_plain() && is_key && std::isinf(bad())) continue;
    const KvCase c = make(is_key);
    const Index shape = {2, 2 * KvCase::kHeads, KvCase::kDim};
    Tensor q(DType::f32, shape), out(DType::f32, shape), lse(DType::f32, {shape[0], shape[1]});
    fill_normal(q, 17);
    DecodeAttentionArgs args{.q = q, .kv = c.kv(), .out = out, .scale = 0.2f};
    ASSERT_TRUE(cpu::runs_by_vectors(args));
    for (const cpu::SimdLevel level : cpu::simd_levels()) {
      cpu::attention_decode(args, level);
      expect_tainted(values_of(out), is_key);
    }
    args.lse = lse;
    cpu::attention_decode(args);
    expect_tainted(values_of(out), is_key);
    const Values lses = values_of(lse);
    for (size_t i = 0; i < lses.size(); ++i) {
      const bool sees = i < 2 * KvCase::kHeads && static_cast<int64_t>(i) / 2 == kBadHead;
      ASSERT_EQ(std::isnan(lses[i]), is_key && sees) << i;
    }
  }
}

std::string case_name(const ::testing::TestParamInfo<std::tuple<KvCaseFormat, double>>& info) {
  const double bad = std::get<1>(info.param);
  const char* name = std::isnan(bad) ? "_nan" : bad > 0 ? "_inf" : "_minus_inf";
  return std::string(std::get<0>(info.param).name) + name;
}

INSTANTIATE_TEST_SUITE_P(EveryFormat, NotFinite,
                         ::testing::Combine(::testing::ValuesIn(kKvFormats),
                                            ::testing::Values(kNan, kInfinity, -kInfinity)),
                         case_name);

}  // namespace
}  // namespace tessera::testing
