// The engine: takes requests, runs steps, reports outputs, and survives steps that fail.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/constraints.h"
#include "engine/request_table.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/watchdog.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// A step goes once through the parts below:
//
//   Scheduler::draft      guesses at the tokens that come next
//   Scheduler::plan       which sequences compute how many tokens
//   Scheduler::assemble   pages taken, the batch built
//   Sampler::describe     how tokens are drawn
//   Sampler::add_masks    what constraints allow
//   Runner::launch        all of it to the device: forward pass and draws
//   Runner::wait          the drawn tokens
//   Sampler::read         tokens and log-probabilities of each row
//   RequestTable::commit  tokens and text appended; finished sequences end
//
// If the engine runs ahead, a call of step() launches step n + 1 before it waits for step n, which
// the call before launched. The tokens that n draws reach n + 1 on the device; the host needs only
// their number. A sequence that step n turns out to end has a row in n + 1 that nobody reads.
// Steps that need a decision of the host in between (beams, the first tokens of siblings, scores of
// a prompt, guessed tokens) are waited for before the next is planned. What a sequence with a
// constraint may draw in n + 1 depends on its token of n: such a step is launched up to the forward
// pass, and its draws follow when step n is committed, while the device computes.
class EngineImpl final : public Engine {
 public:
  // `options` have their defaults filled in. `draft_model` is for Speculation::draft.
  EngineImpl(std::unique_ptr<Runner> runner, std::optional<Tokenizer> tokenizer,
             const EngineOptions& options, std::unique_ptr<DraftSource> draft_model = nullptr);

  std::optional<RequestId> submit(Request request) override;
  void cancel(RequestId request) override { requests_.cancel(request); }
  std::vector<SequenceOutput> step() override;
  bool has_work() const override { return !requests_.is_empty(); }
  EngineMetrics metrics() const override;
  const Tokenizer* tokenizer() const override { return tokenizer_ ? &*tokenizer_ : nullptr; }
  int64_t max_context() const override { return options_.max_context; }
  int64_t vocab() const override { return runner_->config().vocab; }
  int64_t hidden() const override { return runner_->config().hidden; }
  Device device() const override { return options_.device; }

  void check_pages() const { scheduler_.check_pages(); }
  // Calls `hook` whenever a step enters a stage. Tests make it throw, wait or break the device.
  void on_stage(std::function<void(StepStage)> hook) { stage_hook_ = std::move(hook); }

 private:
  enum class Failure : uint8_t { error, device_fault };

  void enter(StepStage stage);
  void run_step();
  bool launch_step();
  void launch_draws();
  void commit_step();
  bool may_run_ahead();
  void fail_step(std::string_view why, Failure failure);
  uint64_t draw_seed();
  std::vector<BatchRow>& rows_of(int64_t step) {
    return rows_[static_cast<size_t>(step % Runner::kDepth)];
  }

  EngineOptions options_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Runner> runner_;
  Scheduler scheduler_;
  Sampler sampler_;
  ConstraintTable constraints_;
  RequestTable requests_;
  uint64_t seed_key_;
  uint64_t num_seeds_ = 0;

  // Steps in progress: rows_[n % 2] for step number n, of which num_committed_ up to num_launched_
  // have been launched. Step num_launched_ awaits its draws if has_forward_ says so. Members so
  // that their memory is reused from step to step.
  StepInput step_;
  std::array<std::vector<BatchRow>, Runner::kDepth> rows_;
  int64_t num_launched_ = 0, num_committed_ = 0;
  bool has_forward_ = false;

  StepStage stage_ = StepStage::idle;
  std::function<void(StepStage)> stage_hook_;
  bool is_dead_ = false;
  std::string death_;  // why it is dead
  Watchdog watchdog_;  // last, so that its thread ends first
};

}  // namespace tessera::engine
