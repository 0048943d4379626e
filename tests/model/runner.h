// Runs a model over sequences in a paged cache, as an engine would, without an engine.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "model/model.h"

namespace tessera::testing {

// Tokens a sequence has in the cache, and the pages they lie in.
struct Sequence {
  std::vector<int32_t> pages;
  int64_t num_computed = 0;
  int32_t tail = 0;  // of keys, where there are tails: one for each sequence under way
};

// What one step computes for a sequence: these tokens, and the logits of the last or of all.
struct Chunk {
  Sequence* sequence = nullptr;
  std::vector<int32_t> tokens;
  bool wants_all_logits = false;
  bool is_prompt = false;  // a chunk even where it is of one token
};

class Runner {
 public:
  static constexpr int64_t kPageSize = 16;  // 32 where keys have tails
  static constexpr int64_t kNumTails = 16;

  Runner(std::unique_ptr<model::Model> model, dist::Communicator& communicator,
         int64_t num_pages = 96, KvFormat kv_type = KvFormat::plain)
      : page_size_(model::has_tails(kv_type) ? 2 * kPageSize : kPageSize),
        limits_{.tokens = 320,
                .batch = 16,
                .max_pages = 512 / page_size_,
                .logits = 320,
                .max_positions = 512,
                .kv_type = kv_type},
        model_(std::move(model)),
        kv_(model_->config(), model_->num_kv_heads(),
            {.num_pages = num_pages,
             .page_size = page_size_,
             .dtype = model_->dtype(),
             .type = kv_type,
             .num_tails = model::has_tails(kv_type) ? kNumTails : 0},
            cpu_device()),
        buffers_(limits_, cpu_device()) {
    model_->prepare(limits_, communicator);
    // Neighbouring pages of a sequence lie far apart: 29 and the number of pages share no factor.
    for (int64_t i = 0; i < num_pages; ++i) {
      free_pages_.push_back(static_cast<int32_t>(i * 29 % num_pages));
    }
  }

  // Chunks of one token come first. The logits [rows, vocab] are valid until the next step.
  TensorView step(std::span<const Chunk> chunks) {
    fill(chunks);
    return run();
  }

  // The two halves of step: the first may allocate, the second must not.
  void fill(std::span<const Chunk> chunks) {
    host_.clear();
    host_.max_pages = limits_.max_pages;
    host_.query_starts.push_back(0);
    for (const Chunk& chunk : chunks) add(chunk);
  }
  TensorView run() { return model_->forward(buffers_.upload(host_, ctx_), kv_, ctx_); }

  void release(Sequence& sequence) {
    free_pages_.insert(free_pages_.end(), sequence.pages.begin(), sequence.pages.end());
    sequence = {};
  }
  Context& context() { return ctx_; }
  model::KvMemory& kv() { return kv_; }
  model::Model& model() { return *model_; }

 private:
  void add(const Chunk& chunk) {
    Sequence& sequence = *chunk.sequence;
    const int64_t num_tokens = static_cast<int64_t>(chunk.tokens.size());
    const int64_t seq_len = sequence.num_computed + num_tokens;
    while (static_cast<int64_t>(sequence.pages.size()) * page_size_ < seq_len) {
      sequence.pages.push_back(free_pages_.back());
      free_pages_.pop_back();
    }
    for (int64_t i = 0; i < num_tokens; ++i) {
      const int64_t position = sequence.num_computed + i;
      const int64_t page = sequence.pages[static_cast<size_t>(position / page_size_)];
      const bool is_last = i + 1 == num_tokens;
      if (is_last || chunk.wants_all_logits) {
        host_.logit_rows.push_back(static_cast<int32_t>(host_.tokens.size()));
      }
      host_.tokens.push_back(chunk.tokens[static_cast<size_t>(i)]);
      host_.positions.push_back(static_cast<int32_t>(position));
      host_.slots.push_back(static_cast<int32_t>(page * page_size_ + position % page_size_));
    }
    host_.page_table.insert(host_.page_table.end(), sequence.pages.begin(), sequence.pages.end());
    host_.seq_lens.push_back(static_cast<int32_t>(seq_len));
    if (model::has_tails(limits_.kv_type)) host_.tails.push_back(sequence.tail);
    // Entries beyond a sequence are never read; a -1 that is read would fail.
    host_.page_table.resize(host_.seq_lens.size() * static_cast<size_t>(limits_.max_pages), -1);
    host_.query_starts.push_back(static_cast<int32_t>(host_.tokens.size()));
    const bool is_decode = num_tokens == 1 && !chunk.is_prompt;
    if (is_decode && host_.num_decodes + 1 == static_cast<int64_t>(host_.seq_lens.size())) {
      ++host_.num_decodes;
    }
    sequence.num_computed = seq_len;
  }

  int64_t page_size_;
  model::BatchLimits limits_;
  std::unique_ptr<model::Model> model_;
  model::KvMemory kv_;
  model::BatchBuffers buffers_;
  model::HostBatch host_;
  std::vector<int32_t> free_pages_;
  Context ctx_{.batch_invariant = true};
};

// A row of logits, copied.
inline std::vector<float> row_of(const TensorView& logits, int64_t row) {
  const float* begin = logits.as<float>() + row * logits.stride(0);
  return {begin, begin + logits.size(1)};
}

inline int32_t argmax_of(const std::vector<float>& row) {
  size_t best = 0;
  for (size_t i = 1; i < row.size(); ++i) best = row[i] > row[best] ? i : best;
  return static_cast<int32_t>(best);
}

}  // namespace tessera::testing
