// How a step moves a beam search on: pages follow the beams, and the best are returned at the end.
// SPDX-License-Identifier: MIT
#include <utility>

#include "core/text.h"
#include "engine/engine_impl.h"

namespace tessera::engine {

// Parents without a child let go first, so that no more lists are held than there are beams. The
// last child of a parent takes its list over, those before it a copy.
void EngineImpl::move_beam_pages(BeamGroup& beams, std::span<const int32_t> parents) {
  std::vector<int32_t> num_left(beams.lists.size(), 0);
  for (const int32_t parent : parents) ++num_left[static_cast<size_t>(parent)];
  for (size_t i = 0; i < beams.lists.size(); ++i) {
    if (num_left[i] == 0) cache_.release(beams.lists[i]);
  }
  std::vector<cache::PageList> next;
  next.reserve(parents.size());
  for (const int32_t parent : parents) {
    cache::PageList& list = beams.lists[static_cast<size_t>(parent)];
    const bool is_last = --num_left[static_cast<size_t>(parent)] == 0;
    next.push_back(is_last ? std::exchange(list, {}) : fork(list));
  }
  beams.lists = std::move(next);
}

void EngineImpl::commit_beams(Sequence& sequence, std::span<RowResult> results) {
  BeamGroup& beams = *sequence.beams;
  if (beams.lists.empty()) beams.lists.push_back(std::exchange(sequence.pages, {}));
  std::vector<std::vector<BeamToken>> candidates;
  std::vector<std::vector<TokenLogprob>> tops;
  for (RowResult& result : results) {
    candidates.push_back(std::move(result.candidates));
    tops.push_back(std::move(result.top));
  }
  move_beam_pages(beams, beams.search.advance(candidates, tops));
  counters_.num_generated_tokens += std::ssize(beams.lists);
  if (beams.search.is_done()) finish_beams(*sequence.request);
}

void EngineImpl::finish_beams(ActiveRequest& active) {
  const std::vector<FinishedBeam>& found = active.sequences.front()->beams->search.results();
  for (int32_t index = 0; index < active.request.num_outputs; ++index) {
    SequenceOutput& output = add_output(active, index);
    if (index < std::ssize(found)) {
      report_beam(found[static_cast<size_t>(index)], output);
    } else {
      output.finish = FinishReason::error;
      output.error = concat("beam search found ", found.size(), " continuations of the ",
                            active.request.num_outputs, " asked for");
    }
    active.is_finished[static_cast<size_t>(index)] = true;  // last: memory may run out before
  }
  close_if_finished(active);
}

void EngineImpl::report_beam(const FinishedBeam& finished, SequenceOutput& output) const {
  std::vector<int32_t> ids;
  for (const OutputToken& token : finished.beam.tokens) ids.push_back(token.token);
  if (finished.is_ended) ids.pop_back();
  if (tokenizer_) output.text = tokenizer_->decode(ids);
  output.tokens = finished.beam.tokens;
  output.score = static_cast<float>(finished.score);
  output.finish = finished.is_ended ? FinishReason::stop : FinishReason::length;
}

}  // namespace tessera::engine
