// Queues of sequences and the pages they hold: decides what the next step computes, and builds it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cache/page_cache.h"
#include "engine/plan.h"
#include "engine/runner.h"
#include "engine/sequence.h"
#include "engine/speculator.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Owns the queues and every page number; the memory behind the numbers is the Runner's. A step asks
// it twice: plan() decides without changing any queue or page, assemble() carries the plan out. One
// step may be in progress meanwhile: its tokens are not known yet, but how many there will be is.
class Scheduler {
 public:
  // `options` have their defaults filled in. `draft_model` is the source of guesses for
  // Speculation::draft.
  Scheduler(const EngineOptions& options, int64_t num_pages,
            std::unique_ptr<DraftSource> draft_model = nullptr);

  // The queues. A sequence is in at most one of them, from enqueue to remove.
  void enqueue(Sequence& sequence);      // to wait, in the order of service; starts over
  void add_running(Sequence& sequence);  // a sibling that continues a running sequence
  void remove(Sequence& sequence);       // releases its pages
  int64_t num_waiting_to_start() const;  // requests that have never run

  // Refills the drafts of running sequences for the step that is planned next.
  void draft() { speculator_.refill(running_); }
  // What the next step should compute: the sequences as plan entries, given to engine::plan.
  Plan plan();
  // Whether planning the next step must wait for the tokens being drawn, because drafts will
  // probably follow them.
  bool expects_drafts() { return speculator_.expects_drafts(running_); }
  bool runs_draft_model() const { return speculator_.runs_model(); }
  // The draft model has failed: sequences go on without.
  void give_up_drafts() { speculator_.give_up(running_); }
  // Preempts, admits and takes pages as planned. Fills `step` for the runner, except for what it
  // samples, and `rows` with what each row of its batch is. From here on the sequences count as
  // computed that far, so that the next step can be planned before this one has ended. False if the
  // plan is empty: there is nothing to run.
  bool assemble(const Plan& plan, StepInput& step, std::vector<BatchRow>& rows);

  // Pages, for whoever commits a step.
  // A second list over the same pages. Pages are copied when one of the lists writes to them; a
  // tail changes with every token, so its copy is due at once: see take_tail_copies.
  cache::PageList fork(const cache::PageList& list);
  void release(cache::PageList& list) { cache_.release(list); }
  // Gives up what was computed from this position on: guesses that were wrong.
  void take_back(Sequence& sequence, int64_t num_computed);
  // Offers the computed part of the prompt to the prefix cache.
  void index_prompt(Sequence& sequence, int64_t num_computed);
  // The tail copies that forks have made necessary; to be run before the next step.
  PageCopies take_tail_copies() { return std::exchange(tail_copies_, {}); }
  // From now on pages are not released: a failure has left their bookkeeping half changed.
  void abandon_pages() { has_sound_pages_ = false; }

  void add_metrics(EngineMetrics& metrics) const;
  // Refuses if a page is held by nobody or counted wrongly; walks everything, for tests.
  void check_pages() const;

 private:
  PlanEntry entry_of(Sequence& sequence) const;
  void describe_beams(Sequence& sequence, PlanEntry& entry) const;
  bool may_read_cache(const Sequence& sequence) const;
  void release_pages(Sequence& sequence);
  void preempt(Sequence& sequence);
  void start(Sequence& sequence, int64_t num_cached);
  void fill_row(BatchRow& row, model::HostBatch& batch);
  void advance(const BatchRow& row);
  void fill_batch(StepInput& step, std::vector<BatchRow>& rows);

  EngineOptions options_;
  cache::PageCache cache_;
  Speculator speculator_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;  // in order of service
  PageCopies tail_copies_;
  bool has_sound_pages_ = true;
  int64_t num_preemptions_ = 0;
  int64_t num_cached_tokens_ = 0;

  // The plan being made or carried out. Members only so that their memory is reused.
  std::vector<PlanEntry> running_entries_, waiting_entries_;
  std::vector<Sequence*> planned_running_, planned_waiting_;
  std::vector<cache::PageCopy> copies_;
  std::vector<int32_t> draw_rows_, score_rows_;  // of the batch's tokens
};

}  // namespace tessera::engine
