// Construction of a rank's device memory, and one step of the model.
// SPDX-License-Identifier: MIT
#include "engine/runner.h"

#include "engine/memory_check.h"
#include "engine/validate.h"
#include "tessera/core/memory_use.h"

namespace tessera::engine {
namespace {

// The logits of a model on the CPU are in host memory already.
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

// The model's memory has been allocated by now; what its kernels will take is still free.
int64_t free_for_kv(const model::ModelConfig& config, const EngineOptions& options) {
  return free_memory(options.device) - kernel_scratch_bytes(config, options);
}

}  // namespace

Runner::Runner(std::unique_ptr<model::Model> model, const EngineOptions& options,
               std::unique_ptr<dist::Communicator> communicator)
    : communicator_(std::move(communicator)),
      model_(prepared(std::move(model), limits_of(options), *communicator_)),
      kv_(config(), model_->num_kv_heads(),
          choose_kv(config(), options, free_for_kv(config(), options)), options.device),
      buffers_(limits_of(options), options.device),
      host_logits_(options.device, host_logit_bytes(*model_)) {}

void Runner::launch(const StepInput& step) {
  const Context ctx = context();
  if (!step.page_copies.empty()) kv_.copy_pages(step.page_copies, ctx);
  const TensorView logits = model_->forward(buffers_.upload(step.batch, ctx), kv_, ctx);
  const auto count = static_cast<size_t>(logits.num_elements());
  if (logits.device.is_cpu()) {
    logits_ = {logits.as<float>(), count};
    return;
  }
  copy_bytes(host_logits_.as<float>(), cpu_device(), logits.data, logits.device,
             count * sizeof(float), ctx.stream);
  logits_ = {host_logits_.as<float>(), count};
}

// Also needed where no logits are wanted: the next step overwrites the same buffers.
std::span<const float> Runner::wait() {
  if (!device().is_cpu()) synchronize(device(), context().stream);
  return logits_;
}

void Runner::copy_tails(std::span<const std::pair<int32_t, int32_t>> copies) {
  for (const auto& [source, target] : copies) kv_.copy_tail(source, target, context());
}

void Runner::drain() { synchronize(device()); }

void Runner::add_metrics(EngineMetrics& metrics) const {
  metrics.kv_bytes = kv_.size_bytes();
  metrics.kv_bytes_per_token = kv_.page_bytes() / kv_.page_size();
  metrics.weight_bytes = model_->weight_bytes();
  metrics.activation_bytes = model_->activation_bytes();
  const AllocatedBytes held = allocated_bytes(device());
  metrics.device_bytes = held.now;
  metrics.peak_device_bytes = held.peak;
  metrics.peak_host_bytes = peak_host_bytes();
}

}  // namespace tessera::engine
