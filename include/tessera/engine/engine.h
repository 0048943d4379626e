// The engine: requests in, tokens out, many at a time. One thread calls it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/device.h"
#include "tessera/core/dtype.h"
#include "tessera/engine/field_names.h"
#include "tessera/engine/request.h"
#include "tessera/engine/tokenizer.h"
#include "tessera/ops/kv_format.h"

namespace tessera {

// How the process ends when a step overruns EngineOptions::step_timeout_s.
inline constexpr int kStepTimeoutStatus = 4;

struct EngineOptions {
  Device device = {};
  DType dtype = DType::bf16;           // of weights and activations
  bool use_int8_weights = false;       // linear layers as int8 codes
  bool check_weights = false;          // refuse NaN and infinity at load
  int64_t max_context = 0;             // tokens of one sequence; 0: what the model was made for
  int64_t kv_bytes = 0;                // memory for the KV cache's pages; 0: room for max_batch
                                       // contexts, at most a quarter of the free memory, of a GPU's
                                       // four fifths
  KvFormat kv_type = KvFormat::plain;  // how keys and values are stored
  int64_t page_size = 16;              // tokens; a multiple of 32 for KvFormat::int4
  int64_t max_batch = 64;              // sequences in one step
  int64_t max_step_tokens = 512;       // tokens in one step: prompts are cut into chunks
  int64_t max_step_logits = 0;         // rows of logits in one step; 0: max_batch. Chunks of
                                       // prompts whose logprobs are wanted are cut to fit
  int64_t max_queue = 1024;            // requests waiting; more are refused
  bool use_prefix_cache = true;
  // Seconds that a step may take. One that takes longer hangs: the process says where and ends with
  // kStepTimeoutStatus. 0: no limit; none given: 120 on a GPU, no limit on the CPU.
  std::optional<double> step_timeout_s = {};
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_load = {};
  FieldNames field_names = {};                  // of these options and of requests, in refusals
  std::function<Clock::time_point()> now = {};  // what deadlines are held against; none: the clock
};

struct EngineMetrics {
  bool is_dead = false;  // a step failed in a way that nothing can follow; see Engine::step
  int64_t num_waiting = 0;
  int64_t num_running = 0;   // sequences
  int64_t num_finished = 0;  // requests, cancelled ones included
  int64_t num_cancelled = 0;
  int64_t num_preemptions = 0;
  int64_t num_steps = 0;
  int64_t num_prompt_tokens = 0;    // computed, recomputation included
  int64_t num_replayed_tokens = 0;  // generated before a preemption, and computed again after it
  int64_t num_cached_tokens = 0;    // found in the prefix cache
  int64_t num_generated_tokens = 0;
  int64_t num_pages = 0;
  int64_t num_held_pages = 0;
  int64_t num_idle_pages = 0;    // kept for their prefix only
  int64_t num_shared_pages = 0;  // held by several sequences
  int64_t kv_bytes = 0;          // of the whole pool
  int64_t kv_bytes_per_token = 0;
  int64_t num_held_tokens = 0;        // tokens the held pages are used for, counted once a page
  double kv_waste = 0;                // share of the held pages' rows that hold no token
  double kv_share_of_contiguous = 0;  // held pages over max_context rows for every sequence
  int64_t weight_bytes = 0;
  int64_t activation_bytes = 0;
};

class Engine {
 public:
  // A Hugging Face folder: config.json, tokenizer.json, safetensors. Whatever can be refused
  // without reading weights is refused before: options, a device that lacks a kernel, a tokenizer
  // that does not fit; OutOfMemory where weights, caches and tables do not fit into what is free.
  static std::unique_ptr<Engine> load(const std::filesystem::path& folder,
                                      const EngineOptions& options);
  virtual ~Engine() = default;

  // Refuses a request that could never run, naming the field, and any request once the engine is
  // dead; none when the queue is full.
  virtual std::optional<RequestId> submit(Request request) = 0;
  // Takes effect with the next step at the latest; unknown and finished requests are ignored.
  virtual void cancel(RequestId request) = 0;
  // One round of plan, forward, sample, commit: the news of every sequence that has some. Does not
  // throw what goes wrong in it: requests end with FinishReason::error and the text. Where memory
  // ran out while the batch was computed, those of the batch do, and the engine goes on. After a
  // fault of the device, and where queues or pages were half changed, all do: the engine is dead.
  virtual std::vector<SequenceOutput> step() = 0;
  virtual bool has_work() const = 0;

  virtual EngineMetrics metrics() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;  // null for models made without one
  virtual int64_t max_context() const = 0;
  virtual int64_t vocab() const = 0;
  virtual Device device() const = 0;
};

// Submits one request and steps until it is done: what came back, joined per sequence.
std::vector<SequenceOutput> run_to_end(Engine& engine, Request request);

}  // namespace tessera
