// The last call of a step: tokens and text join their sequences, and what is done ends.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"

namespace tessera::engine {

SequenceOutput& EngineImpl::add_output(ActiveRequest& request, int32_t index) {
  SequenceOutput& output = outputs_.emplace_back();
  output.request = request.id;
  output.index = index;
  if (index == 0 && !request.has_reported_prompt) {
    request.has_reported_prompt = true;
    output.num_prompt_tokens = request.num_prompt();
    output.num_cached_tokens = request.num_cached_tokens;
    output.prompt_logprobs = request.prompt_logprobs;
  }
  return output;
}

// Adds a token's text, and all that is held back if the sequence ends with it. Returns how it ends,
// since a stop string may be complete.
FinishReason EngineImpl::commit_text(Sequence& sequence, int32_t token, FinishReason finish,
                                     std::string& text) {
  if (!sequence.text) return finish;
  const ActiveRequest& active = *sequence.request;
  static const std::vector<std::string> kNone;
  const bool is_past_minimum = active.num_generated(sequence) > active.request.min_new_tokens;
  const std::vector<std::string>& stops = is_past_minimum ? active.request.stop : kNone;
  const bool is_stop_token = finish == FinishReason::stop;
  if (!is_stop_token && sequence.text->push(token, stops, text)) return FinishReason::stop;
  if (finish == FinishReason::none) return finish;
  return sequence.text->finish(stops, text) ? FinishReason::stop : finish;
}

void EngineImpl::commit_token(Sequence& sequence, OutputToken token) {
  ActiveRequest& active = *sequence.request;
  const int32_t id = token.token;
  sequence.tokens.push_back(id);
  if (active.counts_tokens()) ++sequence.counts.generated[id];
  ++counters_.num_generated_tokens;

  FinishReason finish = FinishReason::none;
  if (active.num_generated(sequence) >= active.max_new_tokens) finish = FinishReason::length;
  if (std::ranges::binary_search(active.stop_tokens, id)) finish = FinishReason::stop;
  SequenceOutput& output = add_output(active, sequence.index);
  output.tokens.push_back(std::move(token));
  output.finish = commit_text(sequence, id, finish, output.text);
  if (output.finish == FinishReason::none) return;
  active.is_finished[static_cast<size_t>(sequence.index)] = true;
  retire(sequence);
  close_if_finished(active);
}

// Pages are copied when one of the lists writes to them, tails at once: they change with every
// token.
cache::PageList EngineImpl::fork(const cache::PageList& list) {
  cache::PageList second = cache_.fork(list);
  if (second.tail >= 0) kv_.copy_tail(list.tail, second.tail, context());
  return second;
}

void EngineImpl::fork_siblings(Sequence& first) {
  ActiveRequest& active = *first.request;
  const int32_t num_siblings = std::exchange(first.num_rows, 1);
  for (int32_t index = 1; index < num_siblings; ++index) {
    Sequence& sibling = add_sequence(active, index);
    sibling.tokens = first.tokens;
    sibling.num_computed = first.num_computed;
    sibling.pages = fork(first.pages);
    sibling.is_running = true;
    running_.push_back(&sibling);
  }
}

void EngineImpl::commit_row(const BatchRow& row, RowResult& result) {
  Sequence& sequence = *row.sequence;
  ActiveRequest& active = *sequence.request;
  counters_.num_prompt_tokens += row.is_decode() ? 0 : row.num_tokens;
  counters_.num_replayed_tokens += row.is_decode() && !row.completes() ? 1 : 0;
  sequence.num_computed = row.start + row.num_tokens;
  // Others would compute these tokens as a prompt, so only those that were may be found by them.
  const int64_t num_indexed = std::min(sequence.num_computed, active.num_prompt());
  cache_.index_full_pages(
      sequence.pages,
      std::span<const int32_t>(sequence.tokens).first(static_cast<size_t>(num_indexed)),
      active.request.cache_salt);
  active.prompt_logprobs.insert(active.prompt_logprobs.end(), result.prompt_logprobs.begin(),
                                result.prompt_logprobs.end());
  if (!row.completes()) return;
  if (active.max_new_tokens == 0) return end_request(active, FinishReason::length);
  if (sequence.beams) return commit_beams(sequence, {&result, 1});

  if (sequence.num_rows == 1) return commit_token(sequence, std::move(result.tokens.front()));
  fork_siblings(sequence);
  // A sequence that ends leaves the list, so the list is copied first.
  std::vector<Sequence*> siblings;
  for (const auto& sibling : active.sequences) siblings.push_back(sibling.get());
  for (size_t i = 0; i < siblings.size(); ++i) {
    commit_token(*siblings[i], std::move(result.tokens[i]));
  }
}

std::vector<SequenceOutput> EngineImpl::commit() {
  for (size_t i = 0; i < rows_.size();) {
    Sequence& sequence = *rows_[i].sequence;
    size_t end = i + 1;  // the beams of one search are neighbours
    while (rows_[i].beam >= 0 && end < rows_.size() && rows_[end].sequence == &sequence) ++end;
    const std::span<RowResult> results = std::span(results_).subspan(i, end - i);
    const auto broken = std::ranges::find_if(
        results, [](const RowResult& result) { return !result.error.empty(); });
    if (!sequence.is_running) {
      // A sibling's error ended its request earlier in this step.
    } else if (broken != results.end()) {
      end_request(*sequence.request, FinishReason::error, broken->error);
    } else if (rows_[i].beam >= 0) {
      ++sequence.num_computed;
      commit_beams(sequence, results);
    } else {
      commit_row(rows_[i], results.front());
    }
    i = end;
  }
  return take_news();
}

}  // namespace tessera::engine
