// Batches: what an upload brings over, and what it refuses.
// SPDX-License-Identifier: MIT
#include "model/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/core/message_of.h"

namespace tessera::testing {
namespace {

using model::Batch;
using model::BatchBuffers;
using model::BatchLimits;
using model::HostBatch;

constexpr BatchLimits kLimits{.tokens = 8, .batch = 4, .max_pages = 3, .logits = 5};

// Two decodes, then chunks of two and three tokens.
HostBatch good_batch() {
  return {.tokens = {1, 2, 3, 4, 5, 6, 7},
          .positions = {9, 8, 0, 1, 4, 5, 6},
          .slots = {0, 1, 2, 3, 4, 5, 6},
          .page_table = {0, 1, 2, 3, 4, 5, 6, 7},
          .seq_lens = {10, 9, 2, 7},
          .query_starts = {0, 1, 2, 4, 7},
          .logit_rows = {0, 1, 3, 6},
          .max_pages = 2,
          .num_decodes = 2};
}

std::vector<int32_t> values_of(const TensorView& view) {
  return {view.as<int32_t>(), view.as<int32_t>() + view.num_elements()};
}

TEST(Batch, UploadBringsEverythingOver) {
  BatchBuffers buffers(kLimits, cpu_device());
  const HostBatch host = good_batch();
  const Batch batch = buffers.upload(host, {});
  EXPECT_EQ(batch.num_positions, 1 + *std::ranges::max_element(host.positions));
  EXPECT_EQ(batch.num_tokens(), 7);
  EXPECT_EQ(batch.batch(), 4);
  EXPECT_EQ(batch.num_decodes, 2);
  EXPECT_EQ(values_of(batch.tokens), host.tokens);
  EXPECT_EQ(values_of(batch.positions), host.positions);
  EXPECT_EQ(values_of(batch.slots), host.slots);
  EXPECT_EQ(values_of(batch.page_table), host.page_table);
  EXPECT_EQ(batch.page_table.size(1), 2);
  EXPECT_EQ(values_of(batch.seq_lens), host.seq_lens);
  EXPECT_EQ(values_of(batch.query_starts), host.query_starts);
  EXPECT_EQ(values_of(batch.chunk_starts), (std::vector<int32_t>{0, 2, 5}));
  EXPECT_EQ(values_of(batch.logit_rows), host.logit_rows);
}

TEST(Batch, SaysWhetherDecodesBeginWithTheSamePage) {
  BatchBuffers buffers(kLimits, cpu_device());
  HostBatch host = good_batch();
  EXPECT_FALSE(buffers.upload(host, {}).shares_pages);
  host.page_table[4] = 0;  // of a chunk
  EXPECT_FALSE(buffers.upload(host, {}).shares_pages);
  host.page_table[2] = 0;
  EXPECT_TRUE(buffers.upload(host, {}).shares_pages);
}

TEST(Batch, TheFullestStepFits) {
  BatchBuffers buffers(kLimits, cpu_device());
  HostBatch host;
  host.tokens.assign(8, 1);
  host.positions.assign(8, 2);
  host.slots.assign(8, 3);
  host.page_table.assign(12, 4);
  host.seq_lens.assign(4, 5);
  host.query_starts = {0, 2, 4, 6, 8};
  host.logit_rows = {0, 1, 2, 3, 7};
  host.max_pages = 3;
  const Batch batch = buffers.upload(host, {});
  EXPECT_EQ(values_of(batch.page_table), host.page_table);
  EXPECT_EQ(values_of(batch.logit_rows), host.logit_rows);
  EXPECT_EQ(values_of(batch.chunk_starts), host.query_starts);
}

TEST(Batch, ClearKeepsNothing) {
  HostBatch host = good_batch();
  host.clear();
  EXPECT_TRUE(host.tokens.empty() && host.page_table.empty() && host.logit_rows.empty());
  EXPECT_EQ(host.max_pages + host.num_decodes, 0);
}

TEST(Batch, UploadRefusesWhatDisagrees) {
  struct Case {
    std::function<void(HostBatch&)> spoil;
    std::string words;
  };
  const std::vector<Case> cases = {
      {[](HostBatch& b) { b.tokens.resize(9); }, "num_tokens is 9 and the limit 8"},
      {[](HostBatch& b) { b.seq_lens.resize(5); }, "batch is 5 and the limit 4"},
      {[](HostBatch& b) { b.logit_rows.resize(6); }, "num_logits is 6 and the limit 5"},
      {[](HostBatch& b) { b.max_pages = 4; }, "max_pages is 4 and the limit 3"},
      {[](HostBatch& b) { b.max_pages = -1; }, "max_pages is -1"},
      {[](HostBatch& b) { b.positions.pop_back(); }, "positions has 6 entries; it must have 7"},
      {[](HostBatch& b) { b.slots.pop_back(); }, "slots has 6 entries"},
      {[](HostBatch& b) { b.query_starts.pop_back(); }, "query_starts has 4 entries"},
      {[](HostBatch& b) { b.page_table.pop_back(); }, "page_table has 7 entries; it must have 8"},
      {[](HostBatch& b) { b.query_starts.back() = 6; }, "query_starts goes from 0 to 6"},
      {[](HostBatch& b) {
         b.query_starts = {0, 4, 2, 4, 7};
       },
       "must ascend"},
      {[](HostBatch& b) { b.num_decodes = 3; }, "num_decodes is 3"},
      {[](HostBatch& b) { b.num_decodes = -1; }, "num_decodes is -1"},
      {[](HostBatch& b) { b.num_decodes = 5; }, "num_decodes is 5"},
      {[](HostBatch& b) { b.logit_rows.back() = 7; }, "logit_rows has 7; the step has 7 tokens"},
  };
  BatchBuffers buffers(kLimits, cpu_device());
  for (const Case& refused : cases) {
    HostBatch host = good_batch();
    refused.spoil(host);
    const std::string message = message_of([&] { buffers.upload(host, {}); });
    EXPECT_NE(message.find(refused.words), std::string::npos) << refused.words << ": " << message;
  }
}

TEST(Batch, LimitsOfNothingAreRefused) {
  EXPECT_NE(message_of([] { BatchBuffers({}, cpu_device()); }).find("tokens 0"), std::string::npos);
}

}  // namespace
}  // namespace tessera::testing
