// Arguments kv_append and kv_copy_pages refuse.
// SPDX-License-Identifier: MIT
#include <functional>
#include <vector>

#include "tessera/ops/kv_cache.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

TEST(RefusedKvAppend, WrongTensors) {
  const Tensor k(DType::f16, {3, 2, 8}), v(DType::f16, {3, 2, 8}), slots(DType::i64, {3});
  const Tensor k_pages(DType::f16, {4, 5, 2, 8}), v_pages(DType::f16, {4, 5, 2, 8});
  const Tensor wide(DType::f16, {4, 5, 2, 16}), full(DType::f32, {4, 5, 2, 8});
  const KvAppendArgs good{.k = k, .v = v, .slots = slots, .k_pages = k_pages, .v_pages = v_pages};
  const auto refuses = [&](const std::function<void(KvAppendArgs&)>& change, Words words) {
    return refused_with<KvAppendArgs>(good, &kv_append, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.k = slots; }, {"kv_append: k is i64[3]", "bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v = v.view().slice(0, 0, 2); },
                      {"kv_append: v is f16[2, 2, 8]", "k is f16[3, 2, 8]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k = k.view().transposed(1, 2); },
                      {"kv_append: k", "elements of a head must be contiguous"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.v_pages = k_pages; }, {"kv_append: v_pages", "shares memory"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = full; }, {"v_pages is f32", "k is f16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = wide; },
                      {"v_pages is f16[4, 5, 2, 16]", "k_pages is f16[4, 5, 2, 8]"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.k = k.view().slice(1, 0, 1), a.v = v.view().slice(1, 0, 1); },
              {"k is f16[3, 1, 8]", "num_kv_heads and head_dim"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = slots.view().slice(0, 0, 2); },
                      {"slots is i64[2]", "must have 3", "token of k"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v.data = k_pages.view().data; },
                      {"k_pages", "shares memory with", "kv_append: v"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.slots = on_gpu(slots); }, {"slots is on cuda:3"}));
}

TEST(RefusedKvAppend, ASlotBeyondThePagesChangesNothing) {
  const Tensor k(DType::f32, {2, 1, 1}), slots(DType::i64, {2});
  const Tensor k_pages(DType::f32, {4, 5, 1, 1}), v_pages(DType::f32, {4, 5, 1, 1});
  k.view().as<float>()[0] = 3.0f;
  k_pages.view().as<float>()[1] = 5.0f;
  slots.view().as<int64_t>()[0] = 1;
  for (int64_t slot : {int64_t{20}, int64_t{1} << 40}) {
    slots.view().as<int64_t>()[1] = slot;
    const KvAppendArgs args{.k = k, .v = k, .slots = slots, .k_pages = k_pages, .v_pages = v_pages};
    EXPECT_TRUE(refused([&] { kv_append(args); }, {"kv_append: slots[1] is " + std::to_string(slot),
                                                   "4 pages of 5 tokens", "run to 19"}));
    EXPECT_EQ(k_pages.view().as<float>()[1], 5.0f);
  }
}

TEST(RefusedKvCopyPages, WrongTensorsAndPages) {
  const Tensor k_pages(DType::i8, {4, 5, 2, 8}), v_pages(DType::i8, {4, 5, 2, 8});
  const Tensor other(DType::u8, {4, 6, 2, 8}), one = ints({1}, {0});
  const Tensor scales(DType::f16, {3, 5, 2, 1});
  const Tensor sources = ints({2}, {0, 1}), targets = ints({2}, {2, 3});
  const KvCopyPagesArgs good{
      .k_pages = k_pages, .v_pages = v_pages, .sources = sources, .targets = targets};
  const auto refuses = [&](const std::function<void(KvCopyPagesArgs&)>& change, Words words) {
    return refused_with<KvCopyPagesArgs>(good, &kv_copy_pages, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = other; },
                      {"v_pages is u8[4, 6, 2, 8]", "k_pages is i8[4, 5, 2, 8]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_scales = scales; }, {"k_scales is f16[3, 5, 2, 1]"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.v_pages = k_pages; }, {"v_pages", "shares memory with"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.k_pages.rank = 3; }, {"k_pages", "must be 4"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.targets = one; }, {"targets is i32[1]", "must have 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.sources.dtype = DType::f32; }, {"sources", "one of i32"}));
  const auto refuses_pages = [&](std::vector<int32_t> from, std::vector<int32_t> to, Words words) {
    const Tensor bad_from = ints({2}, from), bad_to = ints({2}, to);
    KvCopyPagesArgs args = good;
    args.sources = bad_from;
    args.targets = bad_to;
    return refused([&] { kv_copy_pages(args); }, words);
  };
  EXPECT_TRUE(refuses_pages({0, -1}, {2, 3}, {"sources[1] is -1", "not a page", "0 to 3"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {4, 3}, {"targets[0] is 4", "not a page"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {2, 0}, {"targets[1] is 0", "also a source"}));
  EXPECT_TRUE(refuses_pages({0, 1}, {2, 2}, {"targets[1] is 2", "written twice"}));
  kv_copy_pages(good);  // still works after the refusals
}

}  // namespace
}  // namespace tessera::testing
