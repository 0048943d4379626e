// Rotary embedding on the CPU against float64.
// SPDX-License-Identifier: MIT
#include "cpu/elementwise.h"
#include "tests/cpu/tensors.h"

namespace tessera::testing {
namespace {

// cos and sin of position * 0.1 * (pair + 1), rounded to float: any table will do.
Tensor small_table(int64_t num_positions, int64_t rotary_dim) {
  Tensor table(DType::f32, {num_positions, rotary_dim});
  const int64_t num_pairs = rotary_dim / 2;
  for_each_index(table, [&](const Index& at) {
    const double angle = 0.1 * static_cast<double>(at[0] * (at[1] % num_pairs + 1));
    const double value = at[1] < num_pairs ? std::cos(angle) : std::sin(angle);
    store_from_float(table, at, static_cast<float>(value));
  });
  return table;
}

double read(const TensorView& view, const Index& at) { return load_as_float(view, at); }

// Compares every element with the rotation of what was there before, by the definition: element i
// of a pair at angle t becomes x_i cos t -+ x_partner sin t.
void expect_rotated(const TensorView& before, const TensorView& after, const Values& positions,
                    const Tensor& table, RopeStyle style) {
  const int64_t rotary_dim = table.view().size(1), num_pairs = rotary_dim / 2;
  Values want, bound;
  for_each_index(before, [&](const Index& at) {
    const double x = read(before, at);
    if (at[2] >= rotary_dim) {
      want.push_back(x);
      bound.push_back(0.0);
      return;
    }
    const bool is_half = style == RopeStyle::half_split;
    const int64_t pair = is_half ? at[2] % num_pairs : at[2] / 2;
    const bool is_first = is_half ? at[2] < num_pairs : at[2] % 2 == 0;
    const int64_t partner =
        is_half ? (is_first ? at[2] + num_pairs : at[2] - num_pairs) : at[2] ^ 1;
    const int64_t position = static_cast<int64_t>(positions[static_cast<size_t>(at[0])]);
    const double cosine = read(table, {position, pair});
    const double sine = read(table, {position, num_pairs + pair});
    const double other = read(before, {at[0], at[1], partner});
    want.push_back(x * cosine + (is_first ? -other : other) * sine);
    const double size = std::fabs(x * cosine) + std::fabs(other * sine);
    bound.push_back(rounded_once(before.dtype, want.back(), 2.0 * kFloatUnit * size));
  });
  EXPECT_TRUE(all_close(values_of(after), want, bound));
}

class CpuRope : public ::testing::TestWithParam<DType> {};

TEST_P(CpuRope, RotatesQAndKByTheDefinition) {
  for (RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    for (int64_t head_dim : {2, 6, 64, 80, 128}) {
      for (int64_t rotary_dim : {int64_t{2}, head_dim / 4 * 2, head_dim}) {
        if (rotary_dim == 0) continue;
        SCOPED_TRACE(::testing::Message() << head_dim << " " << rotary_dim);
        const Tensor table = small_table(50, rotary_dim);
        Tensor q(GetParam(), {5, 4, head_dim}), k(GetParam(), {5, 2, head_dim});
        fill_normal(q, 1);
        fill_normal(k, 2);
        const Tensor q_before = q.to(cpu_device()), k_before = k.to(cpu_device());
        const Tensor positions = tensor_of(DType::i64, {5}, {0, 1, 49, 7, 7});
        cpu::rope({.q = q, .k = k, .positions = positions, .table = table, .style = style});
        expect_rotated(q_before, q, values_of(positions), table, style);
        expect_rotated(k_before, k, values_of(positions), table, style);
      }
    }
  }
}

// With cosine 0 and sine 1 a pair (a, b) becomes (-b, a), and integers stay integers.
TEST_P(CpuRope, AQuarterTurnIsExact) {
  const Tensor table = tensor_of(DType::f32, {1, 4}, {0.0, 0.0, 1.0, 1.0});
  const Tensor positions = tensor_of(DType::i32, {1}, {0});
  Tensor q = tensor_of(GetParam(), {1, 1, 5}, {1, 2, 3, 4, 5});
  cpu::rope({.q = q, .k = {}, .positions = positions, .table = table});
  EXPECT_TRUE(all_equal(values_of(q), {-3, -4, 1, 2, 5}));
  set_values(q, {1, 2, 3, 4, 5});
  cpu::rope(
      {.q = q, .k = {}, .positions = positions, .table = table, .style = RopeStyle::interleaved});
  EXPECT_TRUE(all_equal(values_of(q), {-2, 1, -4, 3, 5}));
}

// Element 2i of an interleaved head is element i of a half-split one, and 2i + 1 its partner.
TEST_P(CpuRope, TheTwoStylesAreOnePermutationApart) {
  constexpr int64_t kDim = 32;
  const Tensor table = small_table(9, kDim);
  const Tensor positions = tensor_of(DType::i32, {3}, {8, 0, 5});
  Tensor half(GetParam(), {3, 2, kDim}), woven(GetParam(), {3, 2, kDim});
  const auto weave = [](const Index& at) {
    return Index{at[0], at[1], at[2] % 2 == 0 ? at[2] / 2 : at[2] / 2 + kDim / 2};
  };
  fill_normal(half, 1);
  for_each_index(
      woven, [&](const Index& at) { store_from_float(woven, at, load_as_float(half, weave(at))); });
  cpu::rope({.q = half, .k = {}, .positions = positions, .table = table});
  cpu::rope({.q = woven,
             .k = {},
             .positions = positions,
             .table = table,
             .style = RopeStyle::interleaved});
  for_each_index(woven, [&](const Index& at) {
    EXPECT_EQ(load_as_float(woven, at), load_as_float(half, weave(at)));
  });
}

// q and k as they come out of one projection: [tokens, (heads + 2 * kv_heads) * head_dim].
TEST_P(CpuRope, RotatesInsideAFusedProjection) {
  constexpr int64_t kTokens = 40, kHeads = 4, kKvHeads = 2, kDim = 16;
  Tensor qkv(GetParam(), {kTokens, kHeads + 2 * kKvHeads, kDim});
  fill_normal(qkv, 1);
  const Tensor before = qkv.to(cpu_device());
  const auto part = [](const Tensor& all, int64_t begin, int64_t end) {
    return all.view().slice(1, begin, end);
  };
  const Tensor table = small_table(kTokens, kDim);
  Tensor positions(DType::i32, {kTokens});
  fill_integers(positions, 2, 0, kTokens - 1);
  cpu::rope({.q = part(qkv, 0, kHeads),
             .k = part(qkv, kHeads, kHeads + kKvHeads),
             .positions = positions,
             .table = table});
  const Values at = values_of(positions);
  expect_rotated(part(before, 0, kHeads), part(qkv, 0, kHeads), at, table, RopeStyle::half_split);
  expect_rotated(part(before, kHeads, kHeads + kKvHeads), part(qkv, kHeads, kHeads + kKvHeads), at,
                 table, RopeStyle::half_split);
  const int64_t v = kHeads + kKvHeads;
  EXPECT_TRUE(
      all_equal(values_of(part(qkv, v, v + kKvHeads)), values_of(part(before, v, v + kKvHeads))));
}

TEST_P(CpuRope, NoTokensAndNoHeadsAreFine) {
  const Tensor table = small_table(3, 4);
  Tensor none(GetParam(), {0, 4, 8}), positions(DType::i32, {0});
  cpu::rope({.q = none, .k = none, .positions = positions, .table = table});
  Tensor headless(GetParam(), {2, 0, 8});
  cpu::rope(
      {.q = headless, .k = {}, .positions = tensor_of(DType::i32, {2}, {0, 1}), .table = table});
}

INSTANTIATE_TEST_SUITE_P(EveryFloatType, CpuRope, ::testing::ValuesIn(kFloatTypes), dtype_name);

}  // namespace
}  // namespace tessera::testing
