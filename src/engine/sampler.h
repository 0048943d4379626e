// The step between the model and the requests: rows of logits to the tokens that follow them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"

namespace tessera::engine {

// Reads the sequences of a step and changes none of them. A row whose logits are not finite, or for
// which memory runs out, gets an error of its own; the other rows are not affected.
class Sampler {
 public:
  Sampler(int64_t vocab, int64_t max_batch);

  // One result for each row, valid until the next call. `logits` are [num_logits, vocab].
  std::span<RowResult> sample(std::span<const BatchRow> rows, std::span<const float> logits);

 private:
  std::span<const float> row_of(std::span<const float> logits, int64_t index) const {
    const auto width = static_cast<size_t>(vocab_);
    return logits.subspan(static_cast<size_t>(index) * width, width);
  }
  void score_prompt(const BatchRow& row, std::span<const float> logits, RowResult& result) const;

  int64_t vocab_;
  std::vector<RowResult> results_;  // [max_batch]
};

}  // namespace tessera::engine
