// The pages of the KV cache: where each layer's lie, and copies of them.
// SPDX-License-Identifier: MIT
#include "model/kv_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::KvMemory;

TEST(KvMemory, StartsAsZerosAndLayersLieApart) {
  const KvMemory kv(tiny_config(), 2, {.num_pages = 5, .dtype = DType::f32}, cpu_device());
  EXPECT_EQ(kv.size_bytes(), 2 * 2 * 5 * 16 * 2 * 64 * 4);
  EXPECT_EQ(kv.num_pages(), 5);
  EXPECT_EQ(kv.page_size(), 16);
  float value = 0.0f;
  for (const int64_t layer : {0, 1}) {
    for (const TensorView& pages : {kv.k_pages(layer), kv.v_pages(layer)}) {
      EXPECT_TRUE(pages.has_shape(std::vector<int64_t>{5, 16, 2, 64}));
      float* data = pages.as<float>();
      const int64_t count = pages.num_elements();
      EXPECT_EQ(std::count(data, data + count, 0.0f), count);  // nobody else's writes are here
      std::fill(data, data + count, value += 1.0f);
    }
  }
}

// Page p of the k or v of a layer, filled with a number of its own.
float mark(int64_t layer, int64_t which, int64_t page) {
  return static_cast<float>((layer * 2 + which) * 1000 + page);
}

TEST(KvMemory, CopiesWholePagesOfEveryLayer) {
  constexpr int64_t kPages = 1300;  // more copies than one launch takes
  KvMemory kv(tiny_config(), 1, {.num_pages = kPages, .page_size = 2, .dtype = DType::f32},
              cpu_device());
  const auto pages_of = [&](int64_t layer, int64_t which) {
    return which == 0 ? kv.k_pages(layer) : kv.v_pages(layer);
  };
  const int64_t page_elements = 2 * 64;
  std::vector<std::pair<int32_t, int32_t>> copies;
  for (int32_t page = 0; page < 600; ++page) copies.emplace_back(page, kPages - 1 - page);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t which = 0; which < 2; ++which) {
      for (int64_t page = 0; page < kPages; ++page) {
        float* data = pages_of(layer, which).as<float>() + page * page_elements;
        std::fill(data, data + page_elements, mark(layer, which, page));
      }
    }
  }
  kv.copy_pages(copies, {});
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t which = 0; which < 2; ++which) {
      for (int64_t page = 0; page < kPages; ++page) {
        const int64_t source = page >= kPages - 600 ? kPages - 1 - page : page;
        const float* data = pages_of(layer, which).as<float>() + page * page_elements;
        ASSERT_EQ(std::count(data, data + page_elements, mark(layer, which, source)), page_elements)
            << "layer " << layer << ", page " << page;
      }
    }
  }
}

// 2 layers, 2 heads of 64, pages of 32: codes, and the scales each type has.
TEST(KvMemory, APageTakesItsCodesAndScales) {
  const int64_t rows = 2 * 2 * 2 * 32;  // of keys and values, all layers
  const auto bytes_of = [](KvFormat type) {
    return model::kv_page_bytes(tiny_config(), 2,
                                {.page_size = 32, .dtype = DType::bf16, .type = type});
  };
  EXPECT_EQ(bytes_of(KvFormat::plain), rows * 128);
  EXPECT_EQ(bytes_of(KvFormat::e4m3), rows * 64);
  EXPECT_EQ(bytes_of(KvFormat::e5m2), rows * 64);
  EXPECT_EQ(bytes_of(KvFormat::int8), rows * (64 + 2));
  EXPECT_EQ(bytes_of(KvFormat::uint8), rows * (64 + 4));
  EXPECT_EQ(bytes_of(KvFormat::int4_token), rows * (32 + 4));
  EXPECT_EQ(bytes_of(KvFormat::int4), rows / 2 * (32 + 4) + rows / 2 * 32 + 2 * 2 * 64 * 4);
}

TEST(KvMemory, ScalesOfAPageAndHeadLieSideBySideOnSixteenBytes) {
  for (const KvFormat type : kAllKvFormats) {
    for (const int64_t page_size : {1, 16, 32}) {
      if (type == KvFormat::int4 && page_size % 32 != 0) continue;
      SCOPED_TRACE(::testing::Message() << name(type) << ", pages of " << page_size);
      const KvMemory kv(tiny_config(), 2,
                        {.num_pages = 3,
                         .page_size = page_size,
                         .dtype = DType::bf16,
                         .type = type,
                         .num_tails = 2},
                        cpu_device());
      for (const int64_t layer : {0, 1}) {
        const PagedKv one = kv.layer(layer);
        // Short rows lie with heads before tokens.
        for (const TensorView& pages : {one.k_pages, one.v_pages}) {
          const bool is_short = bit_width(pages.dtype) < 16;
          EXPECT_TRUE((is_short ? pages.transposed(1, 2) : pages).is_contiguous());
        }
        EXPECT_EQ(one.k_tail.rank, type == KvFormat::int4 ? 4 : 0);
        for (const TensorView& scales : {one.k_scales, one.v_scales}) {
          if (scales.rank != 4) continue;
          EXPECT_EQ(scales.stride(1), scales.size(3));
          EXPECT_EQ(reinterpret_cast<uintptr_t>(scales.data) % 16, 0u);
          EXPECT_EQ(scales.stride(0) % 8, 0);
          EXPECT_EQ(scales.stride(2) % 8, 0);
          EXPECT_GE(scales.stride(2), page_size * scales.size(3));
          EXPECT_GE(scales.stride(0), 2 * scales.stride(2));
        }
      }
    }
  }
}

TEST(KvMemory, CopiesScalesWithTheirPagesAndTailsOfEveryLayer) {
  KvMemory kv(tiny_config(), 2,
              {.num_pages = 3,
               .page_size = 32,
               .dtype = DType::f32,
               .type = KvFormat::int4,
               .num_tails = 3},
              cpu_device());
  const auto first_bytes = [](const TensorView& view) { return view.slice(0, 0, 1).as<char>(); };
  for (const int64_t layer : {0, 1}) {
    const PagedKv one = kv.layer(layer);
    for (const TensorView& part : {one.k_pages, one.v_pages, one.k_scales, one.v_scales}) {
      first_bytes(part)[5] = static_cast<char>(40 + layer);
    }
    one.k_tail.as<float>()[70] = 3.0f + static_cast<float>(layer);
  }
  const std::vector<std::pair<int32_t, int32_t>> copies = {{0, 2}};
  kv.copy_pages(copies, {});
  kv.copy_tail(0, 2, {});
  for (const int64_t layer : {0, 1}) {
    const PagedKv one = kv.layer(layer);
    for (const TensorView& part : {one.k_pages, one.v_pages, one.k_scales, one.v_scales}) {
      EXPECT_EQ(part.slice(0, 2, 3).as<char>()[5], 40 + layer);
      EXPECT_EQ(part.slice(0, 1, 2).as<char>()[5], 0);
    }
    EXPECT_EQ(one.k_tail.slice(0, 2, 3).as<float>()[70], 3.0f + static_cast<float>(layer));
    EXPECT_EQ(one.k_tail.slice(0, 1, 2).as<float>()[70], 0.0f);
  }
  EXPECT_NE(message_of([&] { kv.copy_tail(0, 3, {}); }).find("tail 0 to tail 3; there are 3"),
            std::string::npos);
}

// 1000 is beyond e4m3, but not with a scale of 4; each layer has its own, for keys and for values.
TEST(KvMemory, KeepsFp8WithTheScalesOfEachLayer) {
  KvMemory kv(tiny_config(), 2, {.num_pages = 2, .dtype = DType::f32, .type = KvFormat::e4m3},
              cpu_device());
  const model::KvScale scales[] = {{4.0f, 1.0f}, {1.0f, 8.0f}};
  kv.set_scales(scales);
  const Tensor new_rows(DType::f32, {1, 2, 64}), k(DType::f32, {1, 2, 64}),
      v(DType::f32, {1, 2, 64});
  std::fill_n(new_rows.view().as<float>(), 128, 1000.0f);
  int32_t slot = 16, page[] = {1}, zero[] = {0}, length[] = {1};
  const auto ints = [](int32_t* data) { return TensorView::contiguous(data, DType::i32, {1}); };
  for (const int64_t layer : {0, 1}) {
    PagedKv one = kv.layer(layer);
    kv_append({.k = new_rows,
               .v = new_rows,
               .slots = ints(&slot),
               .k_pages = one.k_pages,
               .v_pages = one.v_pages,
               .k_scales = one.k_scales,
               .v_scales = one.v_scales});
    one.page_table = TensorView::contiguous(page, DType::i32, {1, 1});
    one.seq_lens = ints(length);
    kv_gather({.kv = one, .starts = ints(zero), .k = k, .v = v});
    EXPECT_EQ(k.view().as<float>()[100], layer == 0 ? 1024.0f : 448.0f);
    EXPECT_EQ(v.view().as<float>()[100], layer == 0 ? 448.0f : 1024.0f);
  }
  kv.copy_pages(std::vector<std::pair<int32_t, int32_t>>{{1, 0}}, {});
  EXPECT_EQ(kv.k_pages(0).as<uint8_t>()[0], kv.k_pages(0).slice(0, 1, 2).as<uint8_t>()[0]);
  const model::KvScale few[] = {{2.0f, 2.0f}};
  EXPECT_NE(message_of([&] { kv.set_scales(few); }).find("1 scales for 2 layers"),
            std::string::npos);
}

TEST(KvMemory, RefusesWhatItDoesNotHave) {
  KvMemory kv(tiny_config(), 2, {.num_pages = 5, .dtype = DType::f32}, cpu_device());
  EXPECT_NE(message_of([&] { kv.k_pages(2); }).find("layer 2 of 2"), std::string::npos);
  const std::vector<std::pair<int32_t, int32_t>> beyond = {{0, 5}};
  EXPECT_NE(message_of([&] { kv.copy_pages(beyond, {}); }).find("page 0 to page 5"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              KvMemory(tiny_config(), 2, {.num_pages = 0}, cpu_device());
            }).find("num_pages is 0"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              KvMemory(tiny_config(), 2, {.num_pages = 1, .type = KvFormat::int4, .num_tails = 1},
                       cpu_device());
            }).find("page_size is 16 and num_tails 1; int4 needs pages of a multiple of 32"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
