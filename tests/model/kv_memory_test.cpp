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
  const KvMemory kv(tiny_config(), 2, 5, 16, DType::f32, cpu_device());
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
  KvMemory kv(tiny_config(), 1, kPages, 2, DType::f32, cpu_device());
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

TEST(KvMemory, RefusesWhatItDoesNotHave) {
  KvMemory kv(tiny_config(), 2, 5, 16, DType::f32, cpu_device());
  EXPECT_NE(message_of([&] { kv.k_pages(2); }).find("layer 2 of 2"), std::string::npos);
  const std::vector<std::pair<int32_t, int32_t>> beyond = {{0, 5}};
  EXPECT_NE(message_of([&] { kv.copy_pages(beyond, {}); }).find("page 0 to page 5"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              KvMemory(tiny_config(), 2, 0, 16, DType::f32, cpu_device());
            }).find("num_pages is 0"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
