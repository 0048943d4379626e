// Where guesses at the next tokens of sequences come from.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/sampling.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// A sequence that may have a draft.
struct DraftWish {
  uint64_t sequence = 0;                 // Sequence::arrival
  std::span<const int32_t> tokens = {};  // all of it, the last one not computed yet
  int64_t most = 0;                      // tokens to guess
  model::DrawSettings draw = {};         // how the first of them will be drawn
  std::string_view cache_salt = {};
  std::vector<int32_t>* draft = nullptr;  // where the guesses go; empty before
};

// One for an engine. A wrong guess costs time and never changes the output.
class DraftSource {
 public:
  virtual ~DraftSource() = default;

  // Takes in the tokens that are new since the last call; `tokens` is the whole sequence. Returns
  // how many of them it foresaw.
  virtual int64_t follow(uint64_t sequence, std::span<const int32_t> tokens) = 0;
  // Whether propose would probably find something for it. Takes no time.
  virtual bool has_guess(uint64_t sequence) const = 0;
  // Fills in the drafts: up to `most` tokens, none if there is nothing to go by.
  virtual void propose(std::span<const DraftWish> wishes) = 0;
  // The sequence has ended.
  virtual void forget(uint64_t sequence) = 0;

  // Whether propose runs a model, so that guesses for rows that a step does not have are a waste.
  virtual bool runs_model() const { return false; }
  // Rows that a sequence may waste for each token that was foreseen.
  virtual int64_t rows_per_hit() const { return 1; }
  virtual void add_metrics(EngineMetrics&) const {}
  virtual void check_pages() const {}
};

}  // namespace tessera::engine
