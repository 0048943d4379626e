// How requests begin, take in the results of a step, and end.
// SPDX-License-Identifier: MIT
#include "engine/request_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/text.h"
#include "engine/validate.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

// Adds the text of a token and, if the sequence ends with it, the text held back so far. Returns
// how the sequence ends: the token may have completed a stop string.
FinishReason commit_text(Sequence& sequence, int32_t token, bool is_stop_token, FinishReason finish,
                         std::string& text) {
  if (!sequence.text) return finish;
  const ActiveRequest& active = *sequence.request;
  static const std::vector<std::string> kNone;
  const bool is_past_minimum = active.num_generated(sequence) > active.request.min_new_tokens;
  const std::vector<std::string>& stops = is_past_minimum ? active.request.stop : kNone;
  if (!is_stop_token && sequence.text->push(token, stops, text)) return FinishReason::stop;
  if (finish == FinishReason::none) return finish;
  return sequence.text->finish(stops, text) ? FinishReason::stop : finish;
}

// Moves on in the constraint. True if the text is complete and nothing can follow.
bool follow_constraint(Sequence& sequence, int32_t token) {
  grammar::TokenMasks& masks = *sequence.request->masks;
  if (!masks.advance(sequence.progress, token)) {
    fail(concat("engine: token ", token, " was drawn against the constraint"));
  }
  return masks.is_final(sequence.progress);
}

}  // namespace

Sequence& RequestTable::add_sequence(ActiveRequest& request, int32_t index) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request = &request;
  sequence->index = index;
  sequence->arrival = request.id * kMaxOutputs + static_cast<uint64_t>(index);
  if (tokenizer_ != nullptr) {
    sequence->text.emplace(*tokenizer_, request.request.keeps_special);
  }
  if (request.masks) sequence->progress = request.masks->start();
  request.sequences.push_back(std::move(sequence));
  return *request.sequences.back();
}

RequestId RequestTable::add(std::unique_ptr<ActiveRequest> request) {
  const RequestId id = request->id = ++last_id_;
  request->is_finished.assign(static_cast<size_t>(request->request.num_outputs), false);
  Sequence& sequence = add_sequence(*request, 0);
  sequence.tokens = request->request.prompt;
  sequence.num_rows = std::max(request->request.num_outputs, request->request.beam_width);
  const auto place = requests_.emplace(id, std::move(request)).first;
  try {
    scheduler_.enqueue(sequence);
  } catch (...) {  // a request that is in no queue would never end
    requests_.erase(place);
    throw;
  }
  return id;
}

void RequestTable::cancel(RequestId request) {
  const auto found = requests_.find(request);
  if (found != requests_.end()) found->second->is_cancelled = true;
}

void RequestTable::end_cancelled_and_late(const std::function<Clock::time_point()>& now) {
  std::optional<Clock::time_point> time;
  std::vector<std::pair<ActiveRequest*, FinishReason>> ending;
  for (const auto& [id, request] : requests_) {
    const std::optional<Clock::time_point>& deadline = request->request.deadline;
    if (deadline && !time) time = now();
    if (request->is_cancelled) {
      ending.emplace_back(request.get(), FinishReason::cancelled);
    } else if (deadline && *time >= *deadline) {
      ending.emplace_back(request.get(), FinishReason::deadline);
    }
  }
  for (const auto& [request, reason] : ending) end_request(*request, reason);
}

SequenceOutput& RequestTable::add_output(ActiveRequest& request, int32_t index) {
  SequenceOutput& output = outputs_.emplace_back();
  output.request = request.id;
  output.index = index;
  if (index == 0 && !request.has_reported_prompt) {
    request.has_reported_prompt = true;
    output.num_prompt_tokens = request.num_prompt();
    output.num_cached_tokens = request.num_cached_tokens;
    output.start_time = request.start_time;
    output.prompt_logprobs = request.prompt_logprobs;
  }
  return output;
}

void RequestTable::commit_token(Sequence& sequence, OutputToken token, SequenceOutput& output) {
  ActiveRequest& active = *sequence.request;
  const int32_t id = token.token;
  sequence.tokens.push_back(id);
  ++num_generated_tokens_;

  FinishReason finish = FinishReason::none;
  if (active.num_generated(sequence) >= active.max_new_tokens) finish = FinishReason::length;
  const bool is_stop_token = std::ranges::binary_search(active.stop_tokens, id);
  if (is_stop_token) finish = FinishReason::stop;
  if (active.masks && !is_stop_token) {
    try {
      if (follow_constraint(sequence, id)) finish = FinishReason::stop;
    } catch (const Error& error) {  // of this request alone
      return end_request(active, FinishReason::error, error.what());
    }
  }
  output.tokens.push_back(std::move(token));
  output.finish = commit_text(sequence, id, is_stop_token, finish, output.text);
  if (output.finish == FinishReason::none) return;
  active.is_finished[static_cast<size_t>(sequence.index)] = true;
  retire(sequence);
  close_if_finished(active);
}

void RequestTable::fork_siblings(Sequence& first) {
  ActiveRequest& active = *first.request;
  const int32_t num_siblings = std::exchange(first.num_rows, 1);
  for (int32_t index = 1; index < num_siblings; ++index) {
    Sequence& sibling = add_sequence(active, index);
    sibling.tokens = first.tokens;
    sibling.progress = first.progress;
    sibling.num_computed = first.num_computed;
    sibling.pages = scheduler_.fork(first.pages);
    scheduler_.add_running(sibling);
  }
}

void RequestTable::commit_row(const BatchRow& row, RowResult& result) {
  Sequence& sequence = *row.sequence;
  ActiveRequest& active = *sequence.request;
  num_prompt_tokens_ += row.is_decode() ? 0 : row.num_tokens;
  num_replayed_tokens_ += row.is_decode() && !row.completes ? 1 : 0;
  const bool was_preempted = row.start_number != sequence.num_starts;
  if (!was_preempted) scheduler_.index_prompt(sequence, row.start + row.num_tokens);
  active.prompt_logprobs.insert(active.prompt_logprobs.end(), result.prompt_logprobs.begin(),
                                result.prompt_logprobs.end());
  active.pooled.add(result.states, row.num_states);
  if (!row.completes) return;
  if (active.max_new_tokens == 0) {
    const bool is_scored = active.request.pooling == Pooling::none;
    return end_request(active, is_scored ? FinishReason::length : FinishReason::stop);
  }
  if (sequence.beams) return commit_beams(sequence, {&result, 1});

  if (!was_preempted) --sequence.num_drawing;
  if (sequence.num_rows == 1) {
    return commit_token(sequence, std::move(result.tokens.front()),
                        add_output(active, sequence.index));
  }
  fork_siblings(sequence);
  // A sequence that ends leaves active.sequences, so walk over a copy.
  std::vector<Sequence*> siblings;
  for (const auto& sibling : active.sequences) siblings.push_back(sibling.get());
  for (size_t i = 0; i < siblings.size(); ++i) {
    commit_token(*siblings[i], std::move(result.tokens[i]), add_output(active, siblings[i]->index));
  }
}

// Row 0 is the last known token's, as in any step. A guess was computed from the right tokens if
// all guesses before it were right, that is, if they are what the rows before them have drawn; its
// own draw is then what a step of its own would have drawn, an error included.
void RequestTable::commit_draft(std::span<const BatchRow> rows, std::span<RowResult> results) {
  Sequence& sequence = *rows.front().sequence;
  ActiveRequest& active = *sequence.request;
  const auto num_drafted = rows.size() - 1;
  size_t num_right = 0;
  while (num_right < num_drafted && results[num_right].error.empty() &&
         results[num_right].tokens.front().token == sequence.draft[num_right]) {
    ++num_right;
  }
  --sequence.num_drawing;
  scheduler_.take_back(sequence, rows[num_right].start + 1);
  Speculator::learn(sequence, static_cast<int64_t>(num_drafted), static_cast<int64_t>(num_right));
  num_drafted_tokens_ += static_cast<int64_t>(num_drafted);

  if (!results[0].error.empty()) {
    return end_request(active, FinishReason::error, results[0].error);
  }
  SequenceOutput& output = add_output(active, sequence.index);
  for (size_t i = 0; i <= num_right && !sequence.has_ended; ++i) {
    if (!results[i].error.empty()) {
      return end_request(active, FinishReason::error, results[i].error);
    }
    num_accepted_tokens_ += i > 0 ? 1 : 0;
    commit_token(sequence, std::move(results[i].tokens.front()), output);
  }
}

// Parents without a child release their pages first, so that there are never more lists than
// beams. The last child of a parent takes over the parent's list, the others get a fork of it.
void RequestTable::move_beam_pages(BeamGroup& beams, std::span<const int32_t> parents) {
  std::vector<int32_t> num_left(beams.lists.size(), 0);
  for (const int32_t parent : parents) ++num_left[static_cast<size_t>(parent)];
  for (size_t i = 0; i < beams.lists.size(); ++i) {
    if (num_left[i] == 0) scheduler_.release(beams.lists[i]);
  }
  std::vector<cache::PageList> next;
  next.reserve(parents.size());
  for (const int32_t parent : parents) {
    cache::PageList& list = beams.lists[static_cast<size_t>(parent)];
    const bool is_last = --num_left[static_cast<size_t>(parent)] == 0;
    next.push_back(is_last ? std::exchange(list, {}) : scheduler_.fork(list));
  }
  beams.lists = std::move(next);
}

void RequestTable::commit_beams(Sequence& sequence, std::span<RowResult> results) {
  BeamGroup& beams = *sequence.beams;
  if (beams.lists.empty()) beams.lists.push_back(std::exchange(sequence.pages, {}));
  std::vector<std::vector<BeamToken>> candidates;
  std::vector<std::vector<TokenLogprob>> tops;
  for (RowResult& result : results) {
    candidates.push_back(std::move(result.candidates));
    tops.push_back(std::move(result.top));
  }
  move_beam_pages(beams, beams.search.advance(candidates, tops));
  num_generated_tokens_ += std::ssize(beams.lists);
  if (beams.search.is_done()) finish_beams(*sequence.request);
}

void RequestTable::finish_beams(ActiveRequest& active) {
  const std::vector<FinishedBeam>& found = active.sequences.front()->beams->search.results();
  for (int32_t index = 0; index < active.request.num_outputs; ++index) {
    SequenceOutput& output = add_output(active, index);
    if (index < std::ssize(found)) {
      report_beam(found[static_cast<size_t>(index)], active.request.keeps_special, output);
    } else {
      output.finish = FinishReason::error;
      output.error = concat("beam search found ", found.size(), " continuations of the ",
                            active.request.num_outputs, " asked for");
    }
    active.is_finished[static_cast<size_t>(index)] = true;  // last: the lines above may throw
  }
  close_if_finished(active);
}

void RequestTable::report_beam(const FinishedBeam& finished, bool keep_special,
                               SequenceOutput& output) const {
  std::vector<int32_t> ids;
  for (const OutputToken& token : finished.beam.tokens) ids.push_back(token.token);
  if (finished.is_ended) ids.pop_back();
  if (tokenizer_ != nullptr) output.text = tokenizer_->decode(ids, keep_special);
  output.tokens = finished.beam.tokens;
  output.score = static_cast<float>(finished.score);
  output.finish = finished.is_ended ? FinishReason::stop : FinishReason::length;
}

void RequestTable::commit(std::span<const BatchRow> rows, std::span<RowResult> results) {
  for (size_t i = 0; i < rows.size();) {
    Sequence& sequence = *rows[i].sequence;
    size_t end = i + 1;  // beams of one search are neighbours, and so are guesses
    while (end < rows.size() && rows[end].sequence == &sequence) ++end;
    const std::span<RowResult> own = results.subspan(i, end - i);
    const auto broken =
        std::ranges::find_if(own, [](const RowResult& result) { return !result.error.empty(); });
    if (sequence.has_ended) {
      // By a stop found after this step was launched, or by a sibling's error in this loop.
      num_wasted_rows_ += std::ssize(own);
    } else if (rows[end - 1].guess > 0) {
      commit_draft(rows.subspan(i, end - i), own);
    } else if (broken != own.end()) {
      end_request(*sequence.request, FinishReason::error, broken->error);
    } else if (rows[i].beam >= 0) {
      ++sequence.num_computed;
      commit_beams(sequence, own);
    } else {
      commit_row(rows[i], own.front());
    }
    i = end;
  }
}

void RequestTable::retire(Sequence& sequence) {
  scheduler_.remove(sequence);
  auto& siblings = sequence.request->sequences;
  const auto found = std::ranges::find_if(
      siblings, [&](const auto& sibling) { return sibling.get() == &sequence; });
  ended_.sequences.push_back(std::move(*found));
  siblings.erase(found);
}

void RequestTable::end_request(ActiveRequest& request, FinishReason reason,
                               const std::string& error) {
  for (size_t index = 0; index < request.is_finished.size(); ++index) {
    if (request.is_finished[index]) continue;
    SequenceOutput& output = add_output(request, static_cast<int32_t>(index));
    output.finish = reason;
    output.error = error;
    if (reason == FinishReason::stop) output.embedding = request.pooled.mean();
    request.is_finished[index] = true;
    const auto found = std::ranges::find_if(request.sequences, [&](const auto& sequence) {
      return sequence->index == output.index && !sequence->beams;
    });
    if (found == request.sequences.end()) continue;
    Sequence& sequence = **found;
    if (sequence.text) sequence.text->finish(request.request.stop, output.text);
  }
  num_cancelled_ += reason == FinishReason::cancelled ? 1 : 0;
  close_if_finished(request);
}

void RequestTable::close_if_finished(ActiveRequest& request) {
  if (!std::ranges::all_of(request.is_finished, [](bool finished) { return finished; })) return;
  while (!request.sequences.empty()) retire(*request.sequences.back());
  ++num_finished_;
  const auto found = requests_.find(request.id);
  ended_.requests.push_back(std::move(found->second));
  requests_.erase(found);
}

void RequestTable::fail(std::span<const BatchRow> rows, const std::string& error) {
  std::vector<ActiveRequest*> ending;
  for (const BatchRow& row : rows) {
    ActiveRequest* request = row.sequence->request;
    if (row.sequence->has_ended) continue;
    if (std::ranges::find(ending, request) == ending.end()) ending.push_back(request);
  }
  for (ActiveRequest* request : ending) end_request(*request, FinishReason::error, error);
}

void RequestTable::fail_all(const std::string& error) {
  while (!requests_.empty()) end_request(*requests_.begin()->second, FinishReason::error, error);
}

std::vector<SequenceOutput> RequestTable::take_outputs() {
  ended_before_ = std::exchange(ended_, {});
  return std::exchange(outputs_, {});
}

void RequestTable::add_metrics(EngineMetrics& metrics) const {
  metrics.num_finished = num_finished_;
  metrics.num_wasted_rows = num_wasted_rows_;
  metrics.num_cancelled = num_cancelled_;
  metrics.num_drafted_tokens = num_drafted_tokens_;
  metrics.num_accepted_tokens = num_accepted_tokens_;
  metrics.num_prompt_tokens = num_prompt_tokens_;
  metrics.num_replayed_tokens = num_replayed_tokens_;
  metrics.num_generated_tokens = num_generated_tokens_;
}

}  // namespace tessera::engine
