// One rank of the model on its device: planned steps in, tokens out.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/graph.h"
#include "dist/communicator.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/kv_memory.h"
#include "model/model.h"
#include "model/sampling.h"
#include "tessera/core/context.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

using PageCopies = std::vector<std::pair<int32_t, int32_t>>;  // {source, target}

// Everything a step needs, as plain numbers: it points to no request and no device memory, so the
// same value can be sent to the runner of every rank.
struct StepInput {
  PageCopies page_copies;  // made in this order before the model runs
  model::HostBatch batch;
  model::HostSampling sampling;
};

// Owns what lives on the device: weights and activations, the KV memory, the batch, what is
// sampled, and the communicator to the other ranks. It knows nothing of requests. All memory is
// allocated by the constructor, except host memory for logits and hidden states when they are first
// asked for.
//
// On a GPU a step of generated tokens alone is captured as a CUDA graph, which serves every later
// step of its size class: batch, page table and sampling settings are read from memory at fixed
// addresses. Steps with chunks of prompts are launched kernel by kernel, which takes less time than
// the kernels do.
class Runner {
 public:
  // Steps that can be launched before the first of them is waited for.
  static constexpr int64_t kDepth = model::TokenSampler::kDepth;

  // `options` have their defaults filled in; `model` has the share of the communicator's rank.
  Runner(std::unique_ptr<model::Model> model, const EngineOptions& options,
         std::unique_ptr<dist::Communicator> communicator);
  ~Runner();

  // Queues a step on the device: copies of pages, the batch, the forward pass, the draws, and the
  // results' way back to the host. Tokens of the batch may be draws of the step launched before. On
  // the CPU the step has run when this returns.
  void launch(const StepInput& step);
  // The same in two calls, for a step whose masks depend on tokens that are still being drawn.
  // launch_forward ends with the forward pass and reads only the number of draws of step.sampling;
  // launch_draws does the rest.
  void launch_forward(const StepInput& step);
  void launch_draws(const StepInput& step);
  // Waits for the oldest step in progress. Its results stay valid until release and the next
  // launch.
  model::SampledStep wait() { return sampler_.wait(); }
  void release() { sampler_.release(); }
  // Copies the tails of forked sequences, in this order.
  void copy_tails(std::span<const std::pair<int32_t, int32_t>> copies);
  // Waits until the device is idle; throws DeviceFault if it is broken.
  void drain();

  const model::ModelConfig& config() const { return model_->config(); }
  Device device() const { return model_->device(); }
  int64_t num_pages() const { return kv_.num_pages(); }
  void add_metrics(EngineMetrics& metrics) const;

 private:
  // What a captured step depends on besides the contents of its batch.
  struct GraphKey {
    model::SizeClass size;
    int64_t longest_decode = 0;
    bool shares_pages = false;
    bool has_drafts = false;
    std::optional<model::DrawOptions> draw = {};  // none: the draws are not part of it
    auto operator<=>(const GraphKey&) const = default;
  };
  struct CapturedStep {
    Graph graph;
    TensorView logits;
    int64_t last_use = 0;
  };

  Context context() const { return {.stream = stream_.get(), .batch_invariant = true}; }
  bool can_replay(const model::HostBatch& batch) const;
  model::Batch upload(const StepInput& step, bool is_replayed);
  TensorView forward(const model::Batch& batch, std::optional<model::DrawOptions> draw,
                     bool is_replayed);
  TensorView run(const model::Batch& batch, std::optional<model::DrawOptions> draw);
  TensorView replay(const model::Batch& batch, std::optional<model::DrawOptions> draw);

  OwnedStream stream_;
  std::unique_ptr<dist::Communicator> communicator_;  // before the model, which refers to it
  std::unique_ptr<model::Model> model_;
  model::BatchBuffers buffers_;
  model::TokenSampler sampler_;
  model::KvMemory kv_;  // last of the large ones: it takes what is left
  bool use_graphs_;
  GraphPool pool_;
  std::map<GraphKey, CapturedStep> graphs_;  // after the pool, which must outlive them
  int64_t num_draws_ = 0;                    // of the step being launched
  TensorView logits_ = {};                   // of the step whose draws are to be launched
  int64_t num_launches_ = 0, num_replays_ = 0;
};

}  // namespace tessera::engine
