// The requests in progress, and what the results of a step change in them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "tessera/engine/engine.h"
#include "tessera/text/tokenizer.h"

namespace tessera::engine {

// Owns every request from submit to its last output, and collects the outputs of a step. Sequences
// are queued and their pages released through the scheduler.
class RequestTable {
 public:
  // `tokenizer` may be null: outputs then have tokens and no text. Both are kept by reference.
  RequestTable(Scheduler& scheduler, const Tokenizer* tokenizer)
      : scheduler_(scheduler), tokenizer_(tokenizer) {}

  // Queues the request's first sequence. If memory runs out the table is as it was.
  RequestId add(std::unique_ptr<ActiveRequest> request);
  void cancel(RequestId request);  // takes effect with the next end_cancelled_and_late
  bool is_empty() const { return requests_.empty(); }

  // Asks for the time at most once, and only if some request has a deadline.
  void end_cancelled_and_late(const std::function<Clock::time_point()>& now);
  // Appends the sampled tokens and their text, moves beam searches on, and ends what is finished.
  void commit(std::span<const BatchRow> rows, std::span<RowResult> results);
  // Ends the requests of the rows, or all requests, with an error.
  void fail(std::span<const BatchRow> rows, const std::string& error);
  void fail_all(const std::string& error);

  // The outputs since the last call. Frees sequences that ended before the last call, so that a
  // BatchRow may be used until the second call after it was made.
  std::vector<SequenceOutput> take_outputs();
  void add_metrics(EngineMetrics& metrics) const;

 private:
  Sequence& add_sequence(ActiveRequest& request, int32_t index);
  SequenceOutput& add_output(ActiveRequest& request, int32_t index);
  void commit_row(const BatchRow& row, RowResult& result);
  void fork_siblings(Sequence& first);
  void commit_token(Sequence& sequence, OutputToken token, SequenceOutput& output);
  void commit_draft(std::span<const BatchRow> rows, std::span<RowResult> results);
  void commit_beams(Sequence& sequence, std::span<RowResult> results);
  void move_beam_pages(BeamGroup& beams, std::span<const int32_t> parents);
  void finish_beams(ActiveRequest& request);
  void report_beam(const FinishedBeam& finished, bool keep_special, SequenceOutput& output) const;
  void retire(Sequence& sequence);
  void end_request(ActiveRequest& request, FinishReason reason, const std::string& error = {});
  void close_if_finished(ActiveRequest& request);

  Scheduler& scheduler_;
  const Tokenizer* tokenizer_;
  std::map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
  RequestId last_id_ = 0;
  std::vector<SequenceOutput> outputs_;
  // Ended since the last call of take_outputs, and before it. Rows of steps in progress may still
  // refer to them.
  struct Ended {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<std::unique_ptr<ActiveRequest>> requests;
  };
  Ended ended_, ended_before_;
  int64_t num_finished_ = 0, num_cancelled_ = 0, num_wasted_rows_ = 0;
  int64_t num_drafted_tokens_ = 0, num_accepted_tokens_ = 0;
  int64_t num_prompt_tokens_ = 0, num_replayed_tokens_ = 0, num_generated_tokens_ = 0;
};

}  // namespace tessera::engine
