// Formats of a KV cache that operations refuse: scales and tails that do not fit the pages.
// SPDX-License-Identifier: MIT
#include <functional>

#include "tessera/ops/kv_cache.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Two sequences of up to 64 tokens, one page each.
class RefusedKvFormat : public ::testing::Test {
 protected:
  const Tensor k_{DType::f32, {3, 2, 8}}, v_{DType::f32, {3, 2, 8}};
  const Tensor slots_ = ints({3}, {0, 1, 2}), tail_slots_ = ints({3}, {32, 33, 34});
  const Tensor i4_{DType::i4, {2, 64, 2, 8}}, i8_{DType::i8, {2, 64, 2, 8}};
  const Tensor e4m3_{DType::e4m3, {2, 64, 2, 8}};
  const Tensor one_{DType::f16, {2, 64, 2, 1}}, pair_{DType::f16, {2, 64, 2, 2}};
  const Tensor columns_{DType::f16, {2, 2, 2, 8, 2}}, tail_{DType::f32, {2, 32, 2, 8}};
  const Tensor table_ = ints({2, 1}, {1, 0}), lens_ = ints({2}, {3, 0}), tails_ = ints({2}, {1, 0});
  const Tensor starts_ = ints({2}, {0, 3}), two_scales_{DType::f32, {2}};

  KvAppendArgs columns() const {
    return {.k = k_,
            .v = v_,
            .slots = slots_,
            .k_pages = i4_,
            .v_pages = i8_,
            .k_scales = columns_,
            .v_scales = one_,
            .k_tail = tail_,
            .tail_slots = tail_slots_};
  }
  KvGatherArgs gather() const {
    return {.kv = {.k_pages = i4_,
                   .v_pages = i8_,
                   .page_table = table_,
                   .seq_lens = lens_,
                   .k_scales = columns_,
                   .v_scales = one_,
                   .k_tail = tail_,
                   .tails = tails_},
            .starts = starts_,
            .k = k_,
            .v = v_};
  }
};

TEST_F(RefusedKvFormat, ScalesThatDoNotFit) {
  const KvAppendArgs good = columns();
  kv_append(good);
  const auto refuses = [&](const std::function<void(KvAppendArgs&)>& change, Words words) {
    return refused_with<KvAppendArgs>(good, &kv_append, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.v_scales = {}; },
                      {"v_pages is i8[2, 64, 2, 8]", "v_scales is not given", "f16[2, 64, 2, 1]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_scales = pair_; }, {"v_scales is f16[2, 64, 2, 2]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_scales = one_; },
                      {"k_scales is f16[2, 64, 2, 1]", "f16[2, 64, 2, 2]", "f16[2, 2, 2, 8, 2]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = i4_, a.v_scales = columns_; },
                      {"v_scales is f16[2, 2, 2, 8, 2]", "for keys"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.v_pages = e4m3_; }, {"v_pages is e4m3", "f32[1] or f32[2]"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.v_pages = e4m3_, a.v_scales = two_scales_.view().slice(0, 0, 0); },
              {"v_scales is f32[0]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_scales = pair_; },
                      {"k_tail is given", "scales by column", "leave it out"}));
}

TEST_F(RefusedKvFormat, TailsThatDoNotFit) {
  const KvAppendArgs good = columns();
  const Tensor short_tail(DType::f32, {2, 16, 2, 8}), f16_tail(DType::f16, {2, 32, 2, 8});
  const auto refuses = [&](const std::function<void(KvAppendArgs&)>& change, Words words) {
    return refused_with<KvAppendArgs>(good, &kv_append, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.k_tail = {}; }, {"kv_append: k_tail"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_tail = short_tail; },
                      {"k_tail is f32[2, 16, 2, 8]", "a tail has 32 tokens"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_tail = f16_tail; }, {"k_tail is f16", "k is f32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.tail_slots = tail_slots_.view().slice(0, 0, 2); },
                      {"tail_slots is i32[2]", "must have 3"}));
  for (const int32_t bad : {64, -1, 33}) {  // above the range, below it, wrong position mod 32
    tail_slots_.view().as<int32_t>()[0] = bad;
    EXPECT_TRUE(refused([&] { kv_append(good); },
                        {"tail_slots[0] is " + std::to_string(bad), "slots[0] is 0", "2 tails"}));
  }
}

TEST_F(RefusedKvFormat, RotationsThatDoNotFit) {
  const Tensor q(DType::f32, {3, 4, 8}), table(DType::f32, {5, 8}), odd(DType::f32, {5, 10});
  const Tensor narrow(DType::f32, {3, 4, 4});
  KvAppendArgs good = columns();
  good.rope = KvRope{.q = q, .positions = slots_, .table = table};
  kv_append(good);
  const auto refuses = [&](const std::function<void(KvAppendArgs&)>& change, Words words) {
    return refused_with<KvAppendArgs>(good, &kv_append, change, words);
  };
  EXPECT_TRUE(
      refuses([&](auto& a) { a.rope->q = narrow; }, {"rope.q is f32[3, 4, 4]", "head_dim"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.rope->q = k_; }, {"rope.q", "shares memory"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.rope->table = odd; }, {"rope.table is f32[5, 10]", "at most"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.rope->positions = tails_; }, {"rope.positions is i32[2]"}));
}

TEST_F(RefusedKvFormat, WrongGathers) {
  const KvGatherArgs good = gather();
  kv_gather(good);
  const Tensor wide(DType::f32, {3, 2, 16}), far = ints({2}, {1, 0});
  const auto refuses = [&](const std::function<void(KvGatherArgs&)>& change, Words words) {
    return refused_with<KvGatherArgs>(good, &kv_gather, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.k = wide; }, {"k is f32[3, 2, 16]", "head_dim"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v = k_; }, {"kv_gather: v", "shares memory"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.starts = slots_; }, {"starts is i32[3]", "must have 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.kv.tails = {}; }, {"kv_gather: tails"}));
  const auto refuses_values = [&](const Tensor& tensor, int32_t value, Words words) {
    const int32_t before = tensor.view().as<int32_t>()[0];
    tensor.view().as<int32_t>()[0] = value;
    const auto result = refused([&] { kv_gather(good); }, words);
    tensor.view().as<int32_t>()[0] = before;
    return result;
  };
  EXPECT_TRUE(refuses_values(starts_, 1, {"starts[0] is 1", "seq_lens[0] is 3", "k has 3 tokens"}));
  EXPECT_TRUE(refuses_values(lens_, 65, {"seq_lens[0] is 65", "0 to 64"}));
  EXPECT_TRUE(refuses_values(table_, 2, {"page_table[0, 0] is 2", "pages 0 to 1"}));
  EXPECT_TRUE(refuses_values(tails_, -1, {"tails[0] is -1", "tails 0 to 1"}));
}

}  // namespace
}  // namespace tessera::testing
