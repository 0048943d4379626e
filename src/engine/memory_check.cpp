// Needs against what is free.
// SPDX-License-Identifier: MIT
#include "engine/memory_check.h"

#include <algorithm>

#include "core/text.h"
#include "engine/fill_options.h"
#include "engine/kv_size.h"
#include "model/model.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

// Ways to need less, those that the options leave open.
std::string remedy(const EngineOptions& options) {
  const FieldNames& names = options.field_names;
  std::string text = concat("lower ", names("max_context"));
  if (options.weights == WeightFormat::plain) text += concat(", use ", names("weights"), " int8");
  if (options.dtype == DType::f32) text += concat(", set ", names("dtype"), " to bf16");
  return text + ", or free memory";
}

}  // namespace

int64_t workspace_bytes(const model::ModelConfig& config, const EngineOptions& options) {
  if (options.device.is_cpu()) return 0;
  // Attention over a cache that is cut into splits leaves a partial result of every head in each.
  constexpr int64_t kMostSplits = 64;
  constexpr int64_t kLeastBytes = int64_t{32} << 20;
  const int64_t partial_bytes = options.max_batch * config.num_heads * (config.head_dim + 2) *
                                static_cast<int64_t>(sizeof(float));
  return std::max(kLeastBytes, kMostSplits * partial_bytes);
}

MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options) {
  const model::BatchLimits limits = limits_of(options);
  const int64_t batch = model::batch_bytes(limits);
  const model::ModelNeeds model = model::measure_model(
      config, {.dtype = options.dtype, .format = options.weights, .device = options.device},
      limits);
  MemoryNeeds needs;
  needs.weights = model.weights;
  needs.activations = model.activations + batch + workspace_bytes(config, options);
  if (options.device.is_cpu()) {
    needs.activations += batch;  // the staging memory is the host's as well
  } else {
    needs.host =
        model.largest_weight + batch + storage_bytes(DType::f32, limits.logits * config.vocab);
  }
  return needs;
}

model::KvOptions choose_kv(const model::ModelConfig& config, const EngineOptions& options,
                           int64_t free_bytes) {
  model::KvOptions kv{.page_size = options.page_size,
                      .dtype = options.dtype,
                      .type = options.kv_type,
                      .num_tails = model::has_tails(options.kv_type) ? options.max_batch : 0};
  const int64_t tail_bytes = kv.num_tails * model::kv_tail_bytes(config, config.num_kv_heads, kv);
  kv.num_pages = num_kv_pages({.page_bytes = model::kv_page_bytes(config, config.num_kv_heads, kv),
                               .page_size = options.page_size,
                               .max_context = options.max_context,
                               .max_batch = options.max_batch,
                               .kv_bytes = options.kv_bytes,
                               .free_bytes = std::max<int64_t>(0, free_bytes - tail_bytes),
                               .default_percent = options.device.is_cpu() ? 25 : 80,
                               .names = options.field_names});
  return kv;
}

void check_memory(const model::ModelConfig& config, const EngineOptions& options,
                  int64_t free_bytes, int64_t free_host_bytes) {
  const EngineOptions filled = fill_options(options, config);
  const MemoryNeeds needs = memory_needs(config, filled);
  const std::string who = filled.field_names.prefix("engine");
  if (needs.weights + needs.activations > free_bytes) {
    throw OutOfMemory(
        concat(who, "the model needs ", needs.weights + needs.activations, " bytes of ",
               to_string(filled.device), " before any keys and values: weights ", needs.weights,
               ", activations and tables for a context of ", filled.max_context, " ",
               needs.activations, "; ", free_bytes, " bytes are free: ", remedy(filled)));
  }
  if (needs.host > free_host_bytes) {
    throw OutOfMemory(concat(who, "loading the model to ", to_string(filled.device), " needs ",
                             needs.host, " bytes of host memory; ", free_host_bytes,
                             " bytes are free: free memory"));
  }
  (void)choose_kv(config, filled, free_bytes - needs.weights - needs.activations);
}

void check_memory(const model::ModelConfig& config, const EngineOptions& options) {
  const int64_t free_host_bytes = free_memory(cpu_device());
  check_memory(config, options,
               options.device.is_cpu() ? free_host_bytes : free_memory(options.device),
               free_host_bytes);
}

}  // namespace tessera::engine
