// Which sequences get drafts, how long they are, and what came of them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/draft_source.h"
#include "engine/sequence.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Between the scheduler's sequences and the source of guesses. Without a source there are no
// drafts.
class Speculator {
 public:
  // `options` have their defaults filled in. `source` may be null.
  Speculator(const EngineOptions& options, std::unique_ptr<DraftSource> source);

  // Refills the drafts of the running sequences, for the step that is planned next.
  void refill(std::span<Sequence* const> running);
  // Whether some sequence will probably have a draft once its token has been drawn. Planning that
  // step must wait for the token.
  bool expects_drafts(std::span<Sequence* const> running);
  // The last draft has been verified, as far as it was used.
  static void learn(Sequence& sequence, int64_t num_drafted, int64_t num_accepted);
  void forget(const Sequence& sequence);

  bool runs_model() const { return source_ && source_->runs_model(); }
  // The source has failed: there are no drafts from now on.
  void give_up(std::span<Sequence* const> running);
  void add_metrics(EngineMetrics& metrics) const;
  void check_pages() const;

 private:
  int64_t wanted_length(Sequence& sequence);
  int64_t num_free_rows(std::span<Sequence* const> running) const;

  EngineOptions options_;
  std::unique_ptr<DraftSource> source_;
  bool has_given_up_ = false;
  std::vector<DraftWish> wishes_;  // a member only so that its memory is reused
};

}  // namespace tessera::engine
