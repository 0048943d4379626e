// One rank of the model on its device: planned steps in, logits out.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dist/communicator.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/model.h"
#include "tessera/core/context.h"
#include "tessera/core/host_buffer.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

using PageCopies = std::vector<std::pair<int32_t, int32_t>>;  // {source, target}

// Everything a step needs, as plain numbers: it points to no request and no device memory, so the
// same value can be sent to the runner of every rank.
struct StepInput {
  PageCopies page_copies;  // made in this order before the model runs
  model::HostBatch batch;
};

// Owns what lives on the device: weights and activations, the KV memory, the batch, and the
// communicator to the other ranks. It knows nothing of requests. All memory is allocated by the
// constructor; a step allocates nothing, and its batch lies at addresses that depend on its size
// class alone (model/batch.h).
class Runner {
 public:
  // `options` have their defaults filled in; `model` has the share of the communicator's rank.
  Runner(std::unique_ptr<model::Model> model, const EngineOptions& options,
         std::unique_ptr<dist::Communicator> communicator);

  // Queues a step on the device: copies of pages, the batch, the forward pass, and the logits' way
  // back to the host. On the CPU the step has run when this returns. The step launched before must
  // have been waited for.
  void launch(const StepInput& step);
  // Waits for the step launched last. Returns its logits, f32 [num_logits, vocab] on the host,
  // which stay valid until the next launch.
  std::span<const float> wait();
  // Copies the tails of forked sequences, in this order.
  void copy_tails(std::span<const std::pair<int32_t, int32_t>> copies);
  // Waits until the device is idle; throws DeviceFault if it is broken.
  void drain();

  const model::ModelConfig& config() const { return model_->config(); }
  Device device() const { return model_->device(); }
  int64_t num_pages() const { return kv_.num_pages(); }
  void add_metrics(EngineMetrics& metrics) const;

 private:
  Context context() const { return {.batch_invariant = true}; }

  std::unique_ptr<dist::Communicator> communicator_;  // first: the model refers to it
  std::unique_ptr<model::Model> model_;
  model::KvMemory kv_;
  model::BatchBuffers buffers_;
  HostBuffer host_logits_;         // f32 [max_step_logits, vocab]; empty if the model is on the CPU
  std::span<const float> logits_;  // of the step launched last
};

}  // namespace tessera::engine
