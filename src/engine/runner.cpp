// Construction of a rank's device memory, and one step of the model.
// SPDX-License-Identifier: MIT
#include "engine/runner.h"

#include <algorithm>

#include "core/op_log.h"
#include "engine/memory_check.h"
#include "engine/validate.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_use.h"

namespace tessera::engine {
namespace {

// A graph of an 8B model takes some megabytes of the device's memory.
constexpr size_t kMostGraphs = 64;

std::unique_ptr<model::Model> prepared(std::unique_ptr<model::Model> model,
                                       const model::BatchLimits& limits,
                                       dist::Communicator& communicator) {
  model->prepare(limits, communicator);
  return model;
}

// All else has been allocated by now; what kernels will take is still free.
int64_t free_for_kv(const model::ModelConfig& config, const EngineOptions& options) {
  return free_memory(options.device) - kernel_scratch_bytes(config, options);
}

model::DrawOptions draw_options_of(const model::HostSampling& sampling) {
  return {.has_edits = sampling.has_edits(), .has_masks = sampling.has_masks()};
}

}  // namespace

Runner::Runner(std::unique_ptr<model::Model> model, const EngineOptions& options,
               std::unique_ptr<dist::Communicator> communicator)
    : stream_(options.device),
      communicator_(std::move(communicator)),
      model_(prepared(std::move(model), limits_of(options), *communicator_)),
      buffers_(limits_of(options), options.device),
      sampler_(sampler_limits_of(options, config().vocab), options.device),
      kv_(config(), model_->num_kv_heads(),
          choose_kv(config(), options, free_for_kv(config(), options)), options.device),
      use_graphs_(options.use_graphs && !options.device.is_cpu() && communicator_->size() == 1),
      pool_(options.device) {
  kv_.set_scales(model_->kv_scales());
}

Runner::~Runner() {
  try {
    synchronize(device(), context().stream);  // kernels may still run on what is freed next
  } catch (const Error&) {                    // a broken device was reported when it broke
  }
}

// A graph calls no operations, so a step whose operations are noted is launched kernel by kernel.
bool Runner::can_replay(const model::HostBatch& batch) const {
  const auto size = std::ssize(batch.seq_lens);
  return use_graphs_ && current_op_log() == nullptr && size > 0 && batch.num_decodes == size &&
         std::ssize(batch.logit_rows) <= size;
}

TensorView Runner::run(const model::Batch& batch, std::optional<model::DrawOptions> draw) {
  const Context ctx = context();
  const TensorView logits = model_->forward(batch, kv_, ctx);
  if (draw) sampler_.draw(logits, num_draws_, *draw, ctx);
  return logits;
}

// Captures the step if its like has not been seen. The graph's addresses depend on the key alone.
TensorView Runner::replay(const model::Batch& batch, std::optional<model::DrawOptions> draw) {
  const GraphKey key{batch.size_class, batch.longest_decode, batch.shares_pages, batch.has_drafts,
                     draw};
  auto found = graphs_.find(key);
  if (found == graphs_.end()) {
    if (graphs_.size() >= kMostGraphs) {
      synchronize(device(), context().stream);  // the oldest may still run
      graphs_.erase(std::ranges::min_element(
          graphs_, {}, [](const auto& entry) { return entry.second.last_use; }));
    }
    CapturedStep captured;
    captured.graph = pool_.capture(context().stream, [&] { captured.logits = run(batch, draw); });
    found = graphs_.emplace(key, std::move(captured)).first;
  }
  found->second.last_use = num_launches_;
  found->second.graph.launch(context().stream);
  ++num_replays_;
  return found->second.logits;
}

model::Batch Runner::upload(const StepInput& step, bool is_replayed) {
  const Context ctx = context();
  if (!step.page_copies.empty()) kv_.copy_pages(step.page_copies, ctx);
  model::Batch batch = buffers_.upload(
      step.batch, ctx, is_replayed ? model::Padding::to_class : model::Padding::none);
  batch.drawn = sampler_.tokens();
  batch.wants_states = !step.sampling.state_rows.empty();
  model_->make_angles(batch.num_positions, ctx);
  num_draws_ = is_replayed ? batch.logit_rows.size(0) : std::ssize(step.sampling.draws);
  return batch;
}

TensorView Runner::forward(const model::Batch& batch, std::optional<model::DrawOptions> draw,
                           bool is_replayed) {
  ++num_launches_;
  return is_replayed ? replay(batch, draw) : run(batch, draw);
}

void Runner::launch(const StepInput& step) {
  const bool is_replayed = can_replay(step.batch);
  const model::Batch batch = upload(step, is_replayed);
  sampler_.begin(step.sampling, num_draws_, context());
  const TensorView logits = forward(batch, draw_options_of(step.sampling), is_replayed);
  sampler_.finish(step.sampling, logits, model_->states(), context());
}

void Runner::launch_forward(const StepInput& step) {
  const bool is_replayed = can_replay(step.batch);
  logits_ = forward(upload(step, is_replayed), std::nullopt, is_replayed);
}

void Runner::launch_draws(const StepInput& step) {
  const Context ctx = context();
  sampler_.begin(step.sampling, num_draws_, ctx);
  sampler_.draw(logits_, num_draws_, draw_options_of(step.sampling), ctx);
  sampler_.finish(step.sampling, logits_, model_->states(), ctx);
}

void Runner::copy_tails(std::span<const std::pair<int32_t, int32_t>> copies) {
  for (const auto& [source, target] : copies) kv_.copy_tail(source, target, context());
}

void Runner::drain() { synchronize(device(), context().stream); }

void Runner::add_metrics(EngineMetrics& metrics) const {
  metrics.kv_bytes = kv_.size_bytes();
  metrics.kv_bytes_per_token = kv_.page_bytes() / kv_.page_size();
  metrics.weight_bytes = model_->weight_bytes();
  metrics.activation_bytes = model_->activation_bytes();
  metrics.num_graphs = std::ssize(graphs_);
  metrics.num_replays = num_replays_;
  const AllocatedBytes held = allocated_bytes(device());
  metrics.device_bytes = held.now;
  metrics.peak_device_bytes = held.peak;
  metrics.peak_host_bytes = peak_host_bytes();
}

}  // namespace tessera::engine
