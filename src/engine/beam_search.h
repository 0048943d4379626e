// Beam search without a model: candidates in, the next beams and their parents out.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/request.h"

namespace tessera::engine {

struct Beam {
  std::vector<OutputToken> tokens;  // generated so far
  double logprob = 0.0;             // the sum of their logprobs
};

struct FinishedBeam {
  Beam beam;
  double score = 0.0;     // logprob / length^length_penalty
  bool is_ended = false;  // by a stop token, which is its last; otherwise by the length
};

struct BeamToken {
  int32_t token = 0;
  double logprob = 0.0;  // natural logarithm, under the model's own distribution
};

struct BeamSettings {
  int32_t width = 1;
  int32_t num_results = 1;
  double length_penalty = 1.0;
  int64_t min_new_tokens = 0;  // no stop token before this many
  int64_t max_new_tokens = 1;
  std::vector<int32_t> stop_tokens = {};
};

class BeamSearch {
 public:
  explicit BeamSearch(const BeamSettings& settings);

  // Best first. A search starts with one beam that has no tokens.
  const std::vector<Beam>& live() const { return live_; }
  // How many candidates advance needs per beam: enough for all beams to live on even if every stop
  // token is among the best.
  int64_t num_candidates() const;
  // The best tokens of a row of logits, ties by id; stop tokens are left out before min_new_tokens.
  void best_tokens(std::span<const float> logits, std::vector<BeamToken>& best) const;

  // One step. candidates[i] are the best tokens after live()[i]. Of the `width` best extensions,
  // those that end with a stop token become finished; the best of the others live on. Returns each
  // live beam's parent. Ties go to the better parent, then to the smaller token id. tops[i], if
  // given, are the alternatives to report with a token after live()[i].
  std::span<const int32_t> advance(std::span<const std::vector<BeamToken>> candidates,
                                   std::span<const std::vector<TokenLogprob>> tops = {});
  // No live beam can still beat the results.
  bool is_done() const { return live_.empty(); }
  // At most num_results, best first; of equal scores the one that finished first.
  const std::vector<FinishedBeam>& results() const { return finished_; }

 private:
  bool is_stop(int32_t token) const;
  int64_t num_generated() const { return static_cast<int64_t>(live_.front().tokens.size()); }
  double score_of(double logprob, int64_t length) const;
  void finish(Beam beam, bool is_ended);
  void stop_if_settled();

  BeamSettings settings_;
  std::vector<Beam> live_;
  std::vector<FinishedBeam> finished_;
  std::vector<int32_t> parents_;
};

}  // namespace tessera::engine
