// Sizes of the KV cache, in whole pages.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>

#include "engine/memory_check.h"
#include "tests/core/message_of.h"

namespace tessera::engine {
namespace {

using tessera::testing::message_of;

// A page is 1,600 bytes, a context 63 pages.
const KvNeeds kNeeds = {.page_bytes = 1600,
                        .page_size = 16,
                        .max_context = 1000,
                        .max_batch = 4,
                        .kv_bytes = 0,
                        .free_bytes = 10'000'000};

void expect_refusal(const KvNeeds& needs, const std::string& want) {
  const std::string message = message_of([&] { num_kv_pages(needs); });
  EXPECT_TRUE(message.starts_with(want)) << message;
}

TEST(KvSize, HasRoomForABatchOfContextsWhereMemoryIsPlenty) {
  EXPECT_EQ(num_kv_pages(kNeeds), 4 * 63);
}

TEST(KvSize, TakesAtMostAQuarterOfWhatIsFree) {
  KvNeeds needs = kNeeds;
  needs.free_bytes = 4 * 1600 * 100 + 99;
  EXPECT_EQ(num_kv_pages(needs), 100);
}

TEST(KvSize, OfAGpuMoreIsTakenIfNothingIsAskedFor) {
  KvNeeds needs = kNeeds;
  needs.free_bytes = 200'000;
  needs.default_percent = 80;
  EXPECT_EQ(num_kv_pages(needs), 100);
}

TEST(KvSize, TakesWholePagesOfTheBytesGiven) {
  KvNeeds needs = kNeeds;
  needs.kv_bytes = 1600 * 70 + 1599;
  EXPECT_EQ(num_kv_pages(needs), 70);
  needs.kv_bytes = 1600 * 63;
  EXPECT_EQ(num_kv_pages(needs), 63);
}

TEST(KvSize, RefusesBytesThatHoldNoContext) {
  KvNeeds needs = kNeeds;
  needs.kv_bytes = 1600 * 63 - 1;
  expect_refusal(
      needs,
      "engine: a context of 1000 tokens needs 100800 bytes of KV cache; kv_bytes is 100799: "
      "lower max_context to 992 or less, or raise kv_bytes");
}

TEST(KvSize, RefusesMemoryThatHoldsNoContextAndSaysWhatToSet) {
  KvNeeds needs = kNeeds;
  needs.free_bytes = 1600 * 4 * 10;
  expect_refusal(needs,
                 "engine: a context of 1000 tokens needs 100800 bytes of KV cache; 64000 bytes are "
                 "free beside the model, of which 25 % are taken by default: lower max_context to "
                 "160 or less, or "
                 "set kv_bytes");
}

TEST(KvSize, RefusesMoreThanIsFree) {
  KvNeeds needs = kNeeds;
  needs.kv_bytes = needs.free_bytes + 1;
  expect_refusal(
      needs, "engine: kv_bytes is 10000001; 10000000 bytes are free beside the model: lower it");
}

TEST(KvSize, FindsMemoryOnThisMachine) { EXPECT_GT(free_memory(cpu_device()), 1 << 20); }

}  // namespace
}  // namespace tessera::engine
