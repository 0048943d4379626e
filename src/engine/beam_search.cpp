// Which beams live on, which are finished, and when the search stops.
// SPDX-License-Identifier: MIT
#include "engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/logprobs.h"

namespace tessera::engine {
namespace {

struct Extension {
  double logprob = 0.0;  // of the whole beam
  int32_t parent = 0;
  BeamToken token;
};

bool is_better(const Extension& a, const Extension& b) {
  if (a.logprob != b.logprob) return a.logprob > b.logprob;
  if (a.parent != b.parent) return a.parent < b.parent;
  return a.token.token < b.token.token;
}

Beam extended(const Beam& parent, const Extension& extension,
              std::span<const std::vector<TokenLogprob>> tops) {
  Beam beam{parent.tokens, extension.logprob};
  OutputToken token{extension.token.token, static_cast<float>(extension.token.logprob), {}};
  if (!tops.empty()) token.top = tops[static_cast<size_t>(extension.parent)];
  beam.tokens.push_back(std::move(token));
  return beam;
}

}  // namespace

BeamSearch::BeamSearch(const BeamSettings& settings) : settings_(settings), live_(1) {
  std::sort(settings_.stop_tokens.begin(), settings_.stop_tokens.end());
}

bool BeamSearch::is_stop(int32_t token) const {
  return std::binary_search(settings_.stop_tokens.begin(), settings_.stop_tokens.end(), token);
}

int64_t BeamSearch::num_candidates() const {
  const auto num_stops = std::max<int64_t>(1, std::ssize(settings_.stop_tokens));
  return settings_.width * (1 + num_stops);
}

void BeamSearch::best_tokens(std::span<const float> logits, std::vector<BeamToken>& best) const {
  const bool may_stop = num_generated() >= settings_.min_new_tokens;
  const auto is_likelier = [](const BeamToken& a, const BeamToken& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  const double total = log_sum_exp(logits);
  const int64_t most = num_candidates();
  best.clear();  // a heap whose front is the worst candidate kept so far
  for (int32_t token = 0; token < std::ssize(logits); ++token) {
    if (!may_stop && is_stop(token)) continue;
    const BeamToken next{token, static_cast<double>(logits[static_cast<size_t>(token)]) - total};
    if (std::ssize(best) == most) {
      if (!is_likelier(next, best.front())) continue;
      std::pop_heap(best.begin(), best.end(), is_likelier);
      best.pop_back();
    }
    best.push_back(next);
    std::push_heap(best.begin(), best.end(), is_likelier);
  }
  std::sort_heap(best.begin(), best.end(), is_likelier);
}

double BeamSearch::score_of(double logprob, int64_t length) const {
  return logprob / std::pow(static_cast<double>(length), settings_.length_penalty);
}

void BeamSearch::finish(Beam beam, bool is_ended) {
  const double score = score_of(beam.logprob, std::ssize(beam.tokens));
  const auto place = std::find_if(finished_.begin(), finished_.end(),
                                  [&](const FinishedBeam& other) { return other.score < score; });
  finished_.insert(place, {std::move(beam), score, is_ended});
  if (std::ssize(finished_) > settings_.num_results) finished_.pop_back();
}

// A beam's summed logprob can only fall. So the best score it can still reach is that of its
// present sum at the full length if the penalty rewards length, and at one more token otherwise.
void BeamSearch::stop_if_settled() {
  if (live_.empty() || std::ssize(finished_) < settings_.num_results) return;
  const int64_t length =
      settings_.length_penalty > 0 ? settings_.max_new_tokens : num_generated() + 1;
  if (finished_.back().score >= score_of(live_.front().logprob, length)) live_.clear();
}

std::span<const int32_t> BeamSearch::advance(std::span<const std::vector<BeamToken>> candidates,
                                             std::span<const std::vector<TokenLogprob>> tops) {
  std::vector<Extension> all;
  for (size_t parent = 0; parent < live_.size(); ++parent) {
    for (const BeamToken& token : candidates[parent]) {
      all.push_back({live_[parent].logprob + token.logprob, static_cast<int32_t>(parent), token});
    }
  }
  const auto count = std::min<int64_t>(num_candidates(), std::ssize(all));
  std::partial_sort(all.begin(), all.begin() + count, all.end(), is_better);

  std::vector<Beam> next;
  parents_.clear();
  for (int64_t rank = 0; rank < count && std::ssize(next) < settings_.width; ++rank) {
    const Extension& extension = all[static_cast<size_t>(rank)];
    const Beam& parent = live_[static_cast<size_t>(extension.parent)];
    if (!is_stop(extension.token.token)) {
      next.push_back(extended(parent, extension, tops));
      parents_.push_back(extension.parent);
    } else if (rank < settings_.width) {
      finish(extended(parent, extension, tops), true);
    }
  }
  live_ = std::move(next);
  if (!live_.empty() && num_generated() >= settings_.max_new_tokens) {
    for (Beam& beam : live_) finish(std::move(beam), false);
    live_.clear();
  }
  stop_if_settled();
  if (live_.empty()) parents_.clear();
  return parents_;
}

}  // namespace tessera::engine
