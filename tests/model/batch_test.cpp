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

// A batch of `num_sequences` one-token steps with `max_pages` pages each. `first` shifts all
// values, so that two batches of one size differ.
HostBatch decodes(int32_t num_sequences, int32_t max_pages, int32_t first) {
  HostBatch host;
  host.query_starts = {0};
  for (int32_t i = 0; i < num_sequences; ++i) {
    host.tokens.push_back(first + i);
    host.positions.push_back(first + 2 * i);
    host.slots.push_back(first + 3 * i);
    host.seq_lens.push_back(first + 2 * i + 1);
    host.query_starts.push_back(i + 1);
    host.logit_rows.push_back(i);
    for (int32_t page = 0; page < max_pages; ++page) {
      host.page_table.push_back(first + 100 * i + page);
    }
  }
  host.max_pages = max_pages;
  host.num_decodes = num_sequences;
  return host;
}

std::vector<const void*> addresses_of(const Batch& batch) {
  std::vector<const void*> addresses;
  for (const TensorView* view :
       {&batch.tokens, &batch.positions, &batch.slots, &batch.page_table, &batch.seq_lens,
        &batch.query_starts, &batch.chunk_starts, &batch.logit_rows, &batch.tails,
        &batch.tail_slots, &batch.tail_lens, &batch.exact_starts, &batch.exact_slots}) {
    addresses.push_back(view->data);
  }
  return addresses;
}

TEST(Batch, SizesAreRoundedUpByLessThanAQuarter) {
  for (int64_t count = 0; count <= 1000; ++count) {
    const int64_t size = model::round_up_to_class(count, 1000);
    EXPECT_GE(size, count);
    EXPECT_LT(4 * (size - count), std::max<int64_t>(count, 1)) << count;
    EXPECT_EQ(model::round_up_to_class(size, 1000), size) << "a class is its own class";
  }
  for (int64_t count = 1; count <= 8; ++count) {
    EXPECT_EQ(model::round_up_to_class(count, 64), count);
  }
  EXPECT_EQ(model::round_up_to_class(33, 64), 40);
  EXPECT_EQ(model::round_up_to_class(33, 37), 37);
}

// What a captured step needs: its addresses hold for every step of the class, whatever the step
// holds and whatever ran in between.
TEST(Batch, PartsOfAClassLieAtFixedAddresses) {
  for (const KvFormat kv_type : {KvFormat::plain, KvFormat::int4}) {
    const BatchLimits limits{.tokens = 64,
                             .batch = 48,
                             .max_pages = 24,
                             .logits = 48,
                             .max_positions = 800,
                             .kv_type = kv_type};
    BatchBuffers buffers(limits, cpu_device());
    const auto upload = [&](int32_t num_sequences, int32_t max_pages, int32_t first) {
      HostBatch host = decodes(num_sequences, max_pages, first);
      if (kv_type == KvFormat::int4) host.tails.assign(host.seq_lens.size(), 1);
      const Batch batch = buffers.upload(host, {});
      EXPECT_EQ(values_of(batch.tokens), host.tokens);
      EXPECT_EQ(values_of(batch.logit_rows), host.logit_rows);
      const auto* table = batch.page_table.as<int32_t>();
      for (int32_t s = 0; s < num_sequences; ++s) {
        for (int32_t page = 0; page < max_pages; ++page) {
          EXPECT_EQ(table[s * batch.page_table.stride(0) + page], first + 100 * s + page);
        }
      }
      return batch;
    };
    const Batch first = upload(33, 9, 5);
    EXPECT_EQ(first.size_class, (model::SizeClass{.tokens = 40, .batch = 40, .table_width = 16}));
    upload(2, 24, 1);
    for (const int32_t num_sequences : {34, 37, 40}) {
      for (const int32_t max_pages : {9, 13, 16}) {
        const Batch again = upload(num_sequences, max_pages, 7);
        EXPECT_EQ(again.size_class, first.size_class);
        EXPECT_EQ(addresses_of(again), addresses_of(first));
        EXPECT_EQ(again.page_table.stride(0), 16);
      }
    }
    EXPECT_FALSE(upload(41, 9, 5).size_class == first.size_class);
    EXPECT_FALSE(upload(33, 17, 5).size_class == first.size_class);
  }
}

// What a captured step reads: sequences without keys fill the class up.
TEST(Batch, PaddedDecodesHaveTheSizesOfTheirClass) {
  const BatchLimits limits{.tokens = 64, .batch = 48, .max_pages = 24, .logits = 48};
  BatchBuffers buffers(limits, cpu_device());
  buffers.upload(decodes(40, 24, 9), {});  // leaves other values behind
  buffers.upload(decodes(40, 24, 9), {});
  const HostBatch host = decodes(9, 3, 5);
  const Batch batch = buffers.upload(host, {}, model::Padding::to_class);
  EXPECT_EQ(batch.batch(), 10);
  EXPECT_EQ(batch.num_decodes, 10);
  EXPECT_EQ(batch.page_table.size(0), 10);
  EXPECT_EQ(batch.page_table.size(1), 4);
  const int64_t longest = *std::ranges::max_element(host.seq_lens);
  EXPECT_GE(batch.longest_decode, longest);
  EXPECT_LE(batch.longest_decode, longest * 5 / 4);
  EXPECT_EQ(values_of(batch.tokens)[8], 13);
  EXPECT_EQ(values_of(batch.tokens)[9], 0);
  EXPECT_EQ(values_of(batch.positions)[9], 0);
  EXPECT_EQ(values_of(batch.slots)[9], -1) << "stores nothing";
  EXPECT_EQ(values_of(batch.seq_lens)[9], 0);
  EXPECT_EQ(values_of(batch.query_starts)[10], 10);
  EXPECT_EQ(values_of(batch.logit_rows)[9], 0);
  EXPECT_EQ(values_of(batch.page_table)[4 * 8 + 2], 5 + 100 * 8 + 2);
  EXPECT_EQ(values_of(batch.page_table)[4 * 8 + 3], 0);
  EXPECT_EQ(values_of(batch.page_table)[4 * 9], 0);
  const std::string message =
      message_of([&] { buffers.upload(good_batch(), {}, model::Padding::to_class); });
  EXPECT_NE(message.find("only decodes"), std::string::npos) << message;
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

TEST(Batch, SaysWhetherDecodesAreOfOneSequence) {
  BatchBuffers buffers(kLimits, cpu_device());
  HostBatch host = good_batch();
  EXPECT_FALSE(buffers.upload(host, {}).has_drafts);
  const auto pages_of = [&](int64_t sequence) {
    return host.page_table.begin() + sequence * host.max_pages;
  };
  std::copy_n(pages_of(0), host.max_pages, pages_of(2));  // of a chunk
  EXPECT_FALSE(buffers.upload(host, {}).has_drafts);
  *pages_of(1) = *pages_of(0);  // a common prefix, and pages of its own
  EXPECT_FALSE(buffers.upload(host, {}).has_drafts);
  std::copy_n(pages_of(0), host.max_pages, pages_of(1));
  EXPECT_TRUE(buffers.upload(host, {}).has_drafts);
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
