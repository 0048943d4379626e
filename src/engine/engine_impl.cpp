// Construction, submit, cancel, and the step as four calls.
// SPDX-License-Identifier: MIT
#include "engine/engine_impl.h"

#include <algorithm>
#include <new>
#include <random>

#include "core/text.h"
#include "engine/fill_options.h"
#include "engine/kv_size.h"
#include "engine/memory_check.h"
#include "tessera/core/device_fault.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

uint64_t random_word() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

// Where the model is on the host, so are its logits.
size_t host_logit_bytes(const model::Model& model) {
  if (model.device().is_cpu()) return 0;
  return static_cast<size_t>(model.limits().logits * model.config().vocab) * sizeof(float);
}

std::unique_ptr<model::Model> prepared(std::unique_ptr<model::Model> model,
                                       const model::BatchLimits& limits,
                                       dist::Communicator& communicator) {
  model->prepare(limits, communicator);
  return model;
}

// What operations on a GPU may want beside their arguments. On the CPU none wants any.
std::unique_ptr<Workspace> make_workspace(const model::ModelConfig& config,
                                          const EngineOptions& options) {
  if (options.device.is_cpu()) return nullptr;
  return std::make_unique<Workspace>(options.device, workspace_bytes(config, options));
}

}  // namespace

EngineImpl::EngineImpl(std::unique_ptr<model::Model> model, std::optional<Tokenizer> tokenizer,
                       const EngineOptions& options)
    : options_(fill_options(options, model->config())),
      tokenizer_(std::move(tokenizer)),
      model_(prepared(std::move(model), limits_of(options_), communicator_)),
      workspace_(make_workspace(model_->config(), options_)),
      kv_(model_->config(), model_->num_kv_heads(),
          choose_kv(model_->config(), options_, free_memory(options_.device)), options_.device),
      cache_({.num_pages = kv_.num_pages(),
              .page_size = options_.page_size,
              .use_prefix_index = options_.use_prefix_cache,
              .hash_key = {random_word(), random_word()},
              .num_tails = model::has_tails(options_.kv_type) ? options_.max_batch : 0}),
      buffers_(limits_of(options_), options_.device),
      host_logits_(options_.device, host_logit_bytes(*model_)),
      seed_key_(random_word()),
      results_(static_cast<size_t>(options_.max_batch)),
      watchdog_(*options_.step_timeout_s) {
  if (tokenizer_ && tokenizer_->num_ids() > vocab()) {
    fail(concat("engine: the tokenizer has ids up to ", tokenizer_->num_ids() - 1,
                "; the model's vocabulary ends at ", vocab() - 1, ": they do not belong together"));
  }
}

// A counter under a key of this process: no two requests share a stream, and nobody can guess one.
uint64_t EngineImpl::draw_seed() {
  const uint64_t number = num_seeds_++;
  const uint64_t high = random_bits(seed_key_, number, 0);
  return (high << 32) | random_bits(seed_key_, number, 1);
}

std::optional<RequestId> EngineImpl::submit(Request request) {
  if (is_dead_) fail(concat("engine: it takes no requests since a step failed: ", death_));
  Capacity capacity = capacity_of(options_, vocab(), tokenizer_.has_value());
  capacity.num_pages = kv_.num_pages();
  check_request(request, capacity);
  auto active = std::make_unique<ActiveRequest>();
  for (const int32_t token : request.stop_tokens) active->stop_tokens.push_back(token);
  if (!request.ignores_eos) {
    for (const int32_t token : model_->config().eos_tokens) active->stop_tokens.push_back(token);
  }
  std::ranges::sort(active->stop_tokens);
  const auto repeated = std::ranges::unique(active->stop_tokens);
  active->stop_tokens.erase(repeated.begin(), repeated.end());
  if (request.min_new_tokens > 0 && std::ssize(active->stop_tokens) >= vocab()) {
    const FieldNames& names = options_.field_names;
    fail(concat(names.prefix("request"), names("min_new_tokens"), " is ", request.min_new_tokens,
                ", but every token of the vocabulary is a stop token"));
  }
  const auto num_new = std::ranges::count_if(
      waiting_, [](const Sequence* sequence) { return !sequence->request->was_started; });
  if (num_new >= options_.max_queue) return std::nullopt;

  active->id = ++last_id_;
  active->seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
  active->max_new_tokens = clipped_new_tokens(request, options_.max_context);
  active->is_finished.assign(static_cast<size_t>(request.num_outputs), false);
  active->request = std::move(request);
  Sequence& sequence = add_sequence(*active, 0);
  sequence.tokens = active->request.prompt;
  sequence.num_rows = std::max(active->request.num_outputs, active->request.beam_width);
  const auto place = requests_.emplace(active->id, std::move(active)).first;
  try {
    enqueue(sequence);
  } catch (...) {  // out of memory: a request in no queue would never end
    requests_.erase(place);
    throw;
  }
  return last_id_;
}

void EngineImpl::cancel(RequestId request) {
  const auto found = requests_.find(request);
  if (found != requests_.end()) found->second->is_cancelled = true;
}

void EngineImpl::enter(StepStage stage) {
  stage_ = stage;
  watchdog_.enter(stage);
  if (stage_hook_) stage_hook_(stage);
}

std::vector<SequenceOutput> EngineImpl::step() {
  const StepEnd end{*this};
  if (is_dead_) return end_all();  // of requests that there was no memory to end before
  try {
    enter(StepStage::plan);
    const Plan next = plan_step();
    const std::span<const float> logits = forward(next);
    enter(StepStage::sample);
    sample(logits);
    enter(StepStage::commit);
    return commit();
  } catch (const DeviceFault& fault) {
    return fail_step(fault.what(), true);
  } catch (const std::bad_alloc&) {
    return fail_step("out of memory in a step of the engine", false);
  } catch (const std::exception& error) {
    return fail_step(error.what(), false);
  }
}

}  // namespace tessera::engine
