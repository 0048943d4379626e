// The engine's state, and the four calls a step is made of.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/page_cache.h"
#include "dist/communicator.h"
#include "engine/check_request.h"
#include "engine/plan.h"
#include "engine/sampling/sampler.h"
#include "engine/sequence.h"
#include "engine/watchdog.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/model.h"
#include "tessera/core/context.h"
#include "tessera/core/host_buffer.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::unique_ptr<model::Model> model, std::optional<Tokenizer> tokenizer,
             const EngineOptions& options);

  std::optional<RequestId> submit(Request request) override;
  void cancel(RequestId request) override;
  std::vector<SequenceOutput> step() override;
  bool has_work() const override { return !requests_.empty(); }
  EngineMetrics metrics() const override;
  const Tokenizer* tokenizer() const override { return tokenizer_ ? &*tokenizer_ : nullptr; }
  int64_t max_context() const override { return options_.max_context; }
  int64_t vocab() const override { return model_->config().vocab; }
  Device device() const override { return options_.device; }

  // Refuses if a page is held by nobody or counted wrongly; walks everything, for tests.
  void check_pages() const;
  // Calls `hook` whenever a step enters a stage; tests make it throw, wait or break the device.
  void on_stage(std::function<void(StepStage)> hook) { stage_hook_ = std::move(hook); }

 private:
  void enter(StepStage stage);
  // The four calls. plan_step first ends what was cancelled or is late, so that its pages are free.
  Plan plan_step();
  // Moves pages as the plan says, fills rows_ and runs the model; the logits of the step's rows, on
  // the host, [num_logits, vocab].
  std::span<const float> forward(const Plan& plan);
  void sample(std::span<const float> logits);  // fills results_; changes nothing else
  std::vector<SequenceOutput> commit();

  // plan_stage.cpp
  PlanEntry entry_of(Sequence& sequence) const;
  void describe_beams(Sequence& sequence, PlanEntry& entry) const;
  int64_t first_logit_of(const Sequence& sequence) const;
  bool may_read_cache(const Sequence& sequence) const;
  std::span<const int32_t> cacheable_tokens(const Sequence& sequence) const;
  void end_cancelled_and_late();

  // forward_stage.cpp
  void preempt(Sequence& sequence);
  void start(Sequence& sequence, int64_t num_cached);
  void add_rows(Sequence& sequence, int64_t num_tokens);
  void fill_batch();
  void fill_row(BatchRow& row);
  std::span<const float> run_model();
  Context context() const { return {.workspace = workspace_.get(), .batch_invariant = true}; }

  // sample_stage.cpp
  void score_prompt(const BatchRow& row, std::span<const float> logits, RowResult& result) const;
  void sample_next(const BatchRow& row, std::span<const float> logits, SamplerScratch& scratch,
                   RowResult& result) const;

  // commit_stage.cpp
  void commit_row(const BatchRow& row, RowResult& result);
  cache::PageList fork(const cache::PageList& list);
  void fork_siblings(Sequence& first);
  void commit_token(Sequence& sequence, OutputToken token);
  FinishReason commit_text(Sequence& sequence, int32_t token, FinishReason finish,
                           std::string& text);
  SequenceOutput& add_output(ActiveRequest& request, int32_t index);

  // commit_beams.cpp
  void commit_beams(Sequence& sequence, std::span<RowResult> results);
  void move_beam_pages(BeamGroup& beams, std::span<const int32_t> parents);
  void finish_beams(ActiveRequest& request);
  void report_beam(const FinishedBeam& finished, SequenceOutput& output) const;

  // queues.cpp
  Sequence& add_sequence(ActiveRequest& request, int32_t index);
  void enqueue(Sequence& sequence);  // into waiting_, at its place in the order
  void release_pages(Sequence& sequence);
  void retire(Sequence& sequence);  // out of the queues; stays readable until commit ends
  void end_request(ActiveRequest& request, FinishReason reason, const std::string& error = {});
  void close_if_finished(ActiveRequest& request);
  uint64_t draw_seed();

  // failure.cpp
  std::vector<SequenceOutput> fail_step(std::string_view why, bool is_fault);
  std::vector<SequenceOutput> end_all();
  std::vector<SequenceOutput> take_news();

  EngineOptions options_;  // with every default filled in
  std::optional<Tokenizer> tokenizer_;
  dist::LocalCommunicator communicator_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<Workspace> workspace_;  // null on the CPU
  model::KvMemory kv_;
  cache::PageCache cache_;
  model::BatchBuffers buffers_;
  HostBuffer host_logits_;  // f32 [max_step_logits, vocab]; empty where the model is on the host
  uint64_t seed_key_;
  uint64_t num_seeds_ = 0;

  std::map<RequestId, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;  // in order of service
  RequestId last_id_ = 0;

  // The step under way. Memory is kept from step to step.
  std::vector<PlanEntry> running_entries_, waiting_entries_;
  std::vector<Sequence*> planned_running_, planned_waiting_;
  std::vector<BatchRow> rows_;
  std::vector<RowResult> results_;  // [max_batch]
  model::HostBatch host_batch_;
  std::vector<cache::PageCopy> copies_;
  std::vector<std::pair<int32_t, int32_t>> copy_pairs_;
  std::vector<SequenceOutput> outputs_;
  std::vector<std::unique_ptr<Sequence>> retired_;
  std::vector<std::unique_ptr<ActiveRequest>> closed_;
  EngineMetrics counters_;  // what only ever grows

  // However a step ends, it is not watched any longer.
  struct StepEnd {
    EngineImpl& engine;
    ~StepEnd() { engine.watchdog_.enter(engine.stage_ = StepStage::idle); }
  };

  StepStage stage_ = StepStage::idle;
  std::function<void(StepStage)> stage_hook_;
  bool is_dead_ = false;
  bool has_sound_pages_ = true;  // false: a step failed while it moved them; they are left alone
  std::string death_;            // why it is dead
  Watchdog watchdog_;            // last, so that its thread ends first
};

}  // namespace tessera::engine
