// The engine: requests in, tokens out, many requests at a time. Only one thread may call it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/device.h"
#include "tessera/core/dtype.h"
#include "tessera/engine/field_names.h"
#include "tessera/engine/request.h"
#include "tessera/ops/kv_format.h"
#include "tessera/ops/weight_format.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

// The process's exit status if a step overruns EngineOptions::step_timeout_s.
inline constexpr int kStepTimeoutStatus = 4;

// A part of loading a model that is over.
struct LoadPhase {
  std::string_view name;  // "context", "tokenizer", "weights", "draft weights", "prepare"
  double seconds = 0;     // "context" and "tokenizer" run at the same time
  int64_t num_bytes = 0;  // read from the checkpoint
  std::string note = {};
};

// How the engine guesses tokens that sequences may go on with, to compute several in one step.
enum class Speculation : uint8_t {
  off,
  lookup,  // as a sequence went on where its last tokens came up before, in its prompt or output
  draft,   // as a small model of the same vocabulary goes on
};

struct EngineOptions {
  Device device = {};
  DType dtype = DType::bf16;                    // of weights and activations
  WeightFormat weights = WeightFormat::stored;  // of linear layers
  int64_t weight_group = kDefaultWeightGroup;   // inputs per scale, for WeightFormat::int4
  ActivationFormat activations =
      ActivationFormat::automatic;  // of linear layers with weights of 8-bit codes
  bool check_weights = false;       // refuse NaN and infinity when loading
  int64_t max_context = 0;          // tokens of one sequence; 0: what the model was made for
  int64_t kv_bytes = 0;             // memory for the KV cache. 0: enough for max_batch contexts, or
                         // with drafts for as many as fill it, but at most 25 % of free host
                         // memory, or 80 % of a GPU's
  KvFormat kv_type = KvFormat::plain;  // how keys and values are stored
  int64_t page_size = 16;              // tokens; a multiple of 32 for KvFormat::int4
  int64_t max_batch = 64;              // sequences in one step
  int64_t max_step_tokens = 512;       // tokens in one step; longer prompts are cut into chunks
  int64_t max_step_logits = 0;         // rows of logits in one step; 0: max_batch. Chunks are cut
                                       // further if the logprobs of their prompt are wanted
  int64_t max_queue = 1024;            // requests that may wait; more are refused
  bool use_prefix_cache = true;
  bool use_graphs = true;  // replay steps of generated tokens as CUDA graphs
  // Steps of generated tokens on Hopper: the norm in front of a product becomes part of it for a
  // single sequence, and the append to a plain cache part of attention. Results are the same either
  // way.
  bool fuses_steps = true;
  // Launch each step before the results of the one before are read, so that the device never waits
  // for the host. A sequence that turns out to have ended costs one row of one step. Not set: on a
  // GPU. Results are the same either way.
  std::optional<bool> runs_ahead = {};
  // Guessed tokens are verified as rows of the batch, with what max_batch, max_step_tokens,
  // max_step_logits and the pages leave free. Results are the same with and without. Beam searches,
  // requests with penalties and KvFormat::int4 do without.
  Speculation speculation = Speculation::off;
  int64_t max_draft_tokens = 15;            // guessed at once for a sequence
  std::filesystem::path draft_folder = {};  // for Speculation::draft: the model that guesses. It
                                            // has memory of its own, with the dtype and the weight
                                            // format of the model
  // Seconds a step may take before it counts as hung. The process then reports where it hung and
  // exits with kStepTimeoutStatus. 0: no limit. Not set: 120 on a GPU, no limit on the CPU.
  std::optional<double> step_timeout_s = {};
  // Both are called by the thread that loads: on_load with 0 when reading begins, then as bytes
  // arrive, and on_phase after each part.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load = {};
  std::function<void(const LoadPhase& phase)> on_phase = {};
  FieldNames field_names = {};                  // what error messages call options and requests
  std::function<Clock::time_point()> now = {};  // the clock for deadlines; not set: Clock::now
};

struct EngineMetrics {
  bool is_dead = false;  // a step failed and the engine cannot go on; see Engine::step
  int64_t num_waiting = 0;
  int64_t num_running = 0;   // sequences
  int64_t num_finished = 0;  // requests, including cancelled ones
  int64_t num_cancelled = 0;
  int64_t num_preemptions = 0;
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;    // computed, including recomputation
  int64_t num_replayed_tokens = 0;  // generated before a preemption and computed again after it
  int64_t num_cached_tokens = 0;    // reused from the prefix cache
  int64_t num_generated_tokens = 0;
  int64_t num_pages = 0;
  int64_t num_held_pages = 0;
  int64_t num_idle_pages = 0;    // held by nobody, kept for their prefix
  int64_t num_shared_pages = 0;  // held by several sequences
  int64_t kv_bytes = 0;          // of all pages
  int64_t kv_bytes_per_token = 0;
  int64_t num_held_tokens = 0;        // tokens in held pages; a shared page counts once
  double kv_waste = 0;                // share of rows in held pages that hold no token
  double kv_share_of_contiguous = 0;  // rows in held pages / (max_context * running sequences)
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t num_graphs = 0;           // kept now
  int64_t num_replays = 0;          // steps run as a graph
  int64_t num_wasted_rows = 0;      // computed for sequences that had ended
  int64_t num_drafted_tokens = 0;   // guessed and verified
  int64_t num_accepted_tokens = 0;  // of them, those that were right and are part of an output
  int64_t num_draft_steps = 0;      // of the draft model
  int64_t draft_weight_bytes = 0;
  int64_t draft_kv_bytes = 0;
  int64_t num_held_draft_pages = 0;
  bool has_given_up_drafts = false;  // the draft model failed, and the engine goes on without it
  int64_t num_masks = 0;             // tokens drawn under a constraint
  double mask_seconds = 0;           // spent on finding which tokens they could be
  // Of the process, by tessera::allocate on the engine's device: now, and the most at once
  // (tessera/core/memory_use.h).
  int64_t device_bytes = 0;
  int64_t peak_device_bytes = 0;
  int64_t peak_host_bytes = 0;  // of the process
};

class Engine {
 public:
  // Loads a Hugging Face folder: config.json, tokenizer.json, safetensors. Wrong options, a device
  // that lacks a kernel and a tokenizer that does not match are refused before any weight is read;
  // so is a model that does not fit into free memory, with OutOfMemory.
  static std::unique_ptr<Engine> load(const std::filesystem::path& folder,
                                      const EngineOptions& options);
  virtual ~Engine() = default;

  // Refuses a request that could never run, naming the field, and every request once the engine is
  // dead. Returns nothing if the queue is full.
  virtual std::optional<RequestId> submit(Request request) = 0;
  // Takes effect in the next step at the latest. Unknown and finished requests are ignored.
  virtual void cancel(RequestId request) = 0;
  // Runs one step: plan, forward, sample, commit. Returns the new output of every sequence that has
  // some. If the engine runs ahead, that is the output of the step launched by the call before. A
  // failure does not throw: requests end with FinishReason::error and its text. If memory ran out
  // while the batch was computed, only the requests of the batch end. After a device fault, or a
  // failure that left queues or pages half changed, all requests end and the engine is dead.
  virtual std::vector<SequenceOutput> step() = 0;
  virtual bool has_work() const = 0;

  virtual EngineMetrics metrics() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // null for models made without one
  virtual int64_t max_context() const = 0;
  virtual int64_t vocab() const = 0;
  virtual int64_t hidden() const = 0;  // numbers of an embedding
  virtual Device device() const = 0;
};

// Submits one request and steps until it is finished. Returns its output, joined per sequence.
std::vector<SequenceOutput> run_to_end(Engine& engine, Request request);

}  // namespace tessera
