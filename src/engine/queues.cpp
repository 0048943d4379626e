// Sequences in and out of the queues, and how requests end.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "engine/engine_impl.h"

namespace tessera::engine {
namespace {

BeamSettings settings_of(const ActiveRequest& active) {
  return {.width = active.request.beam_width,
          .num_results = active.request.num_outputs,
          .length_penalty = active.request.length_penalty,
          .min_new_tokens = active.request.min_new_tokens,
          .max_new_tokens = active.max_new_tokens,
          .stop_tokens = active.stop_tokens};
}

bool goes_before(const Sequence* a, const Sequence* b) {
  const int32_t left = a->request->request.priority, right = b->request->request.priority;
  return left != right ? left > right : a->arrival < b->arrival;
}

}  // namespace

Sequence& EngineImpl::add_sequence(ActiveRequest& request, int32_t index) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request = &request;
  sequence->index = index;
  sequence->arrival = request.id * kMaxOutputs + static_cast<uint64_t>(index);
  if (tokenizer_) sequence->text.emplace(*tokenizer_);
  if (request.counts_tokens()) {
    for (const int32_t token : request.request.prompt) ++sequence->counts.prompt[token];
  }
  request.sequences.push_back(std::move(sequence));
  return *request.sequences.back();
}

void EngineImpl::enqueue(Sequence& sequence) {
  sequence.is_running = false;
  sequence.num_computed = 0;
  if (sequence.request->is_beam_search()) {
    sequence.beams = BeamGroup{BeamSearch(settings_of(*sequence.request))};
  }
  waiting_.insert(std::ranges::upper_bound(waiting_, &sequence, goes_before), &sequence);
}

void EngineImpl::release_pages(Sequence& sequence) {
  if (!has_sound_pages_) return;
  cache_.release(sequence.pages);
  if (!sequence.beams) return;
  for (cache::PageList& list : sequence.beams->lists) cache_.release(list);
  sequence.beams->lists.clear();
}

void EngineImpl::retire(Sequence& sequence) {
  release_pages(sequence);
  std::erase(sequence.is_running ? running_ : waiting_, &sequence);
  sequence.is_running = false;
  auto& siblings = sequence.request->sequences;
  const auto found = std::ranges::find_if(
      siblings, [&](const auto& sibling) { return sibling.get() == &sequence; });
  retired_.push_back(std::move(*found));
  siblings.erase(found);
}

void EngineImpl::end_request(ActiveRequest& request, FinishReason reason,
                             const std::string& error) {
  for (size_t index = 0; index < request.is_finished.size(); ++index) {
    if (request.is_finished[index]) continue;
    SequenceOutput& output = add_output(request, static_cast<int32_t>(index));
    output.finish = reason;
    output.error = error;
    request.is_finished[index] = true;
    const auto found = std::ranges::find_if(request.sequences, [&](const auto& sequence) {
      return sequence->index == output.index && !sequence->beams;
    });
    if (found == request.sequences.end()) continue;
    Sequence& sequence = **found;
    if (sequence.text) sequence.text->finish(request.request.stop, output.text);
  }
  counters_.num_cancelled += reason == FinishReason::cancelled ? 1 : 0;
  close_if_finished(request);
}

void EngineImpl::close_if_finished(ActiveRequest& request) {
  if (!std::ranges::all_of(request.is_finished, [](bool finished) { return finished; })) return;
  while (!request.sequences.empty()) retire(*request.sequences.back());
  ++counters_.num_finished;
  const auto found = requests_.find(request.id);
  closed_.push_back(std::move(found->second));
  requests_.erase(found);
}

}  // namespace tessera::engine
