// Requests in, steps, outputs; and what happens when a step fails.
// SPDX-License-Identifier: MIT
#include "engine/engine_impl.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <random>

#include "core/philox.h"
#include "core/text.h"
#include "engine/validate.h"
#include "tessera/core/device_fault.h"
#include "tessera/core/error.h"

namespace tessera {
namespace engine {
namespace {

uint64_t random_word() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

std::vector<int32_t> all_stop_tokens(const Request& request,
                                     const std::vector<int32_t>& eos_tokens) {
  std::vector<int32_t> tokens = request.stop_tokens;
  if (!request.ignores_eos) tokens.insert(tokens.end(), eos_tokens.begin(), eos_tokens.end());
  std::ranges::sort(tokens);
  const auto repeated = std::ranges::unique(tokens);
  tokens.erase(repeated.begin(), repeated.end());
  return tokens;
}

// Of the stop tokens, the model's own and those that add nothing to a text. Others are part of the
// text that a constraint speaks of.
std::vector<int32_t> tokens_without_text(std::vector<int32_t> stop_tokens,
                                         const std::vector<int32_t>& eos_tokens,
                                         const Tokenizer& tokenizer, int64_t vocab) {
  std::erase_if(stop_tokens, [&](int32_t id) {
    const bool is_end = std::ranges::find(eos_tokens, id) != eos_tokens.end() ||
                        tokenizer.token_bytes(id, false).empty();
    return !is_end || id < 0 || id >= vocab;
  });
  return stop_tokens;
}

bool has_constraint(std::span<const BatchRow> rows) {
  return std::ranges::any_of(rows, [](const BatchRow& row) {
    return row.num_draws > 0 && row.sequence->request->masks != nullptr;
  });
}

// Whether the constraint allows nothing but the empty text.
bool has_no_text(grammar::TokenMasks& masks) {
  try {
    return masks.is_final(masks.start());
  } catch (const Error&) {  // too ambiguous, which ends the request in its first step
    return false;
  }
}

}  // namespace

EngineImpl::EngineImpl(std::unique_ptr<Runner> runner, std::optional<Tokenizer> tokenizer,
                       const EngineOptions& options, std::unique_ptr<DraftSource> draft_model)
    : options_(options),
      tokenizer_(std::move(tokenizer)),
      runner_(std::move(runner)),
      scheduler_(options_, runner_->num_pages(), std::move(draft_model)),
      sampler_(vocab(), options_.max_batch),
      constraints_(this->tokenizer()),
      requests_(scheduler_, this->tokenizer()),
      seed_key_(random_word()),
      watchdog_(*options_.step_timeout_s) {
  if (tokenizer_ && tokenizer_->num_ids() > vocab()) {
    fail(concat("engine: the tokenizer has ids up to ", tokenizer_->num_ids() - 1,
                "; the model's vocabulary ends at ", vocab() - 1, ": they do not belong together"));
  }
}

// A counter encrypted with a key of this process: no two requests get the same seed, and nobody
// can guess the next one.
uint64_t EngineImpl::draw_seed() {
  const uint64_t number = num_seeds_++;
  const PhiloxWords counter{{static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)}};
  const PhiloxWords drawn = philox(counter, seed_key_);
  return (uint64_t{drawn.words[0]} << 32) | drawn.words[1];
}

std::optional<RequestId> EngineImpl::submit(Request request) {
  if (is_dead_) fail(concat("engine: it takes no requests since a step failed: ", death_));
  Capacity capacity = capacity_of(options_, vocab(), tokenizer_.has_value());
  capacity.num_pages = runner_->num_pages();
  check_request(request, capacity);
  auto active = std::make_unique<ActiveRequest>();
  active->stop_tokens = all_stop_tokens(request, runner_->config().eos_tokens);
  if (request.min_new_tokens > 0 && std::ssize(active->stop_tokens) >= vocab()) {
    const FieldNames& names = options_.field_names;
    fail(concat(names.prefix("request"), names("min_new_tokens"), " is ", request.min_new_tokens,
                ", but every token of the vocabulary is a stop token"));
  }
  if (scheduler_.num_waiting_to_start() >= options_.max_queue) return std::nullopt;
  active->masks = constraints_.find(request);
  if (active->masks) {
    if (has_no_text(*active->masks)) {  // only the end of text can follow
      request.ignores_eos = false;
      request.min_new_tokens = 0;
      active->stop_tokens = all_stop_tokens(request, runner_->config().eos_tokens);
    }
    active->end_tokens = tokens_without_text(active->stop_tokens, runner_->config().eos_tokens,
                                             *tokenizer_, vocab());
  }
  active->seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  active->max_new_tokens = clipped_new_tokens(request, options_.max_context);
  active->request = std::move(request);
  return requests_.add(std::move(active));
}

void EngineImpl::enter(StepStage stage) {
  stage_ = stage;
  watchdog_.enter(stage);
  if (stage_hook_) stage_hook_(stage);
}

// Plans the next step and hands it to the device. If its masks depend on tokens of the step in
// progress, its draws are left to launch_draws. False if there is nothing to run.
bool EngineImpl::launch_step() {
  const bool runs_draft_model = scheduler_.runs_draft_model();
  enter(runs_draft_model ? StepStage::draft : StepStage::plan);
  scheduler_.draft();
  if (runs_draft_model) enter(StepStage::plan);
  const Plan plan = scheduler_.plan();

  enter(StepStage::assemble);
  std::vector<BatchRow>& rows = rows_of(num_launched_);
  if (!scheduler_.assemble(plan, step_, rows)) return false;
  sampler_.describe(rows, step_.sampling);
  watchdog_.set_batch(std::ssize(rows), std::ssize(step_.batch.tokens));

  enter(StepStage::forward);
  if (num_committed_ < num_launched_ && has_constraint(rows)) {
    runner_->launch_forward(step_);
    has_forward_ = true;
    return true;
  }
  sampler_.add_masks(rows, step_.sampling);
  runner_->launch(step_);
  ++num_launched_;
  return true;
}

// The draws of a step that was launched without them, once the step before is committed.
void EngineImpl::launch_draws() {
  if (!has_forward_) return;
  enter(StepStage::forward);
  sampler_.add_masks(rows_of(num_launched_), step_.sampling);
  runner_->launch_draws(step_);
  has_forward_ = false;
  ++num_launched_;
}

// Takes in the results of the oldest step in progress.
void EngineImpl::commit_step() {
  enter(StepStage::wait);
  const model::SampledStep sampled = runner_->wait();

  enter(StepStage::sample);
  const std::vector<BatchRow>& rows = rows_of(num_committed_);
  const std::span<RowResult> results = sampler_.read(rows, sampled);
  runner_->release();

  enter(StepStage::commit);
  ++num_committed_;
  requests_.commit(rows, results);
  runner_->copy_tails(scheduler_.take_tail_copies());
}

// Whether the next step can be planned without the results of the one in progress.
bool EngineImpl::may_run_ahead() {
  if (!*options_.runs_ahead) return false;
  const auto& rows = rows_[static_cast<size_t>((num_launched_ - 1) % Runner::kDepth)];
  const bool needs_results = std::ranges::any_of(rows, [](const BatchRow& row) {
    return row.num_draws > 1 || row.num_scores > 0 || row.num_states > 0 || row.guess > 0 ||
           row.sequence->beams.has_value();
  });
  return !needs_results && !scheduler_.expects_drafts();
}

void EngineImpl::run_step() {
  enter(StepStage::plan);
  launch_draws();                                  // if the step before it failed
  requests_.end_cancelled_and_late(options_.now);  // first: it frees their pages
  if (num_launched_ == num_committed_ && !launch_step()) return;
  if (may_run_ahead()) launch_step();
  commit_step();
  launch_draws();
}

std::vector<SequenceOutput> EngineImpl::step() {
  struct EndOfWatch {  // however the step ends
    EngineImpl& engine;
    ~EndOfWatch() { engine.watchdog_.enter(engine.stage_ = StepStage::idle); }
  };
  const EndOfWatch end{*this};
  if (is_dead_) {  // memory may have run out before all requests were ended
    requests_.fail_all(death_);
    return requests_.take_outputs();
  }
  try {
    run_step();
  } catch (const DeviceFault& fault) {
    fail_step(fault.what(), Failure::device_fault);
  } catch (const std::bad_alloc&) {
    fail_step("out of memory in a step of the engine", Failure::error);
  } catch (const std::exception& error) {
    fail_step(error.what(), Failure::error);
  }
  return requests_.take_outputs();
}

// In the stages forward, wait and sample, queues and pages do not change and only pages of the
// batch are written: after its requests have ended the engine can go on. In the other stages the
// failure may have come between two changes that belong together, so the engine is dead. It counts
// as dead while this function runs, because this function may run out of memory as well.
//
// A draft model that fails is given up, and nothing else is lost.
//
// A step that is being launched fails without the one before it, whose results are taken in first.
// One that awaits its draws goes on when the one before it has failed.
void EngineImpl::fail_step(std::string_view why, Failure failure) {
  const StepStage stage = stage_;
  if (stage == StepStage::draft && failure == Failure::error) return scheduler_.give_up_drafts();
  const bool is_launched = stage == StepStage::wait || stage == StepStage::sample;
  const bool has_sound_pages =
      stage == StepStage::draft || stage == StepStage::forward || is_launched;
  if (!has_sound_pages) scheduler_.abandon_pages();
  is_dead_ = true;
  death_ = why;
  if (failure == Failure::device_fault || !has_sound_pages) return requests_.fail_all(death_);
  try {
    runner_->drain();  // kernels may still read what the next step writes
    while (!is_launched && num_committed_ < num_launched_) commit_step();
  } catch (const DeviceFault& fault) {
    death_ = fault.what();
    return requests_.fail_all(death_);
  }
  if (is_launched) {
    runner_->release();
  } else {
    has_forward_ = false;
  }
  requests_.fail(rows_of(is_launched ? num_committed_++ : num_launched_), death_);
  is_dead_ = false;
}

EngineMetrics EngineImpl::metrics() const {
  EngineMetrics metrics;
  metrics.is_dead = is_dead_;
  metrics.num_steps = num_launched_;
  scheduler_.add_metrics(metrics);
  requests_.add_metrics(metrics);
  sampler_.add_metrics(metrics);
  runner_->add_metrics(metrics);
  return metrics;
}

}  // namespace engine

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::deadline: return "deadline";
    case FinishReason::error: return "error";
  }
  return "unknown";
}

namespace {

void join(SequenceOutput& whole, SequenceOutput&& part) {
  whole.tokens.insert(whole.tokens.end(), std::make_move_iterator(part.tokens.begin()),
                      std::make_move_iterator(part.tokens.end()));
  whole.text += part.text;
  whole.finish = part.finish;
  whole.error = std::move(part.error);
  whole.score = part.score;
  if (part.num_prompt_tokens > 0) {
    whole.num_prompt_tokens = part.num_prompt_tokens;
    whole.num_cached_tokens = part.num_cached_tokens;
    whole.prompt_logprobs = std::move(part.prompt_logprobs);
    whole.embedding = std::move(part.embedding);
  }
}

}  // namespace

std::vector<SequenceOutput> run_to_end(Engine& engine, Request request) {
  const auto num_outputs = static_cast<size_t>(request.num_outputs);
  const std::optional<RequestId> id = engine.submit(std::move(request));
  expects(id.has_value(), "run_to_end: the engine's queue is full; raise max_queue");
  std::vector<SequenceOutput> outputs(num_outputs);
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs[i].request = *id;
    outputs[i].index = static_cast<int32_t>(i);
  }
  size_t num_finished = 0;
  while (num_finished < num_outputs) {
    for (SequenceOutput& part : engine.step()) {
      if (part.request != *id) continue;  // of a request submitted before
      num_finished += part.finish != FinishReason::none ? 1 : 0;
      join(outputs[static_cast<size_t>(part.index)], std::move(part));
    }
  }
  return outputs;
}

}  // namespace tessera
