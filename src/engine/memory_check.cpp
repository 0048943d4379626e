// Free memory, what an engine needs of it, and how many pages the KV cache gets.
// SPDX-License-Identifier: MIT
#include "engine/memory_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/text.h"
#include "engine/validate.h"
#include "model/model.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::optional<int64_t> read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

int64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return kNoLimit;
}

// A line of memory.stat, such as "active_file 4096".
int64_t read_statistic(std::string_view wanted) {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == wanted) return value;
  }
  return 0;
}

int64_t left_in_container() {
  const auto limit = read_number("/sys/fs/cgroup/memory.max");
  const auto used = read_number("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return kNoLimit;
  // The page cache of files counts as used, but the kernel frees it on demand.
  const int64_t files = read_statistic("active_file") + read_statistic("inactive_file");
  return std::max<int64_t>(0, *limit - *used + files);
}

int64_t left_to_process() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const int64_t used = read_number("/proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

[[noreturn]] void refuse_one_context(const KvNeeds& needs, int64_t context_bytes, int64_t bytes) {
  const FieldNames& names = needs.names;
  const std::string who = names.prefix("engine");
  const int64_t longest = bytes / needs.page_bytes * needs.page_size;
  const std::string fits =
      longest > 0 ? concat("lower ", names("max_context"), " to ", longest, " or less, or ")
                  : std::string();
  const std::string need = concat(who, "a context of ", needs.max_context, " tokens needs ",
                                  context_bytes, " bytes of KV cache; ");
  if (needs.kv_bytes > 0) {
    fail(concat(need, names("kv_bytes"), " is ", needs.kv_bytes, ": ", fits, "raise ",
                names("kv_bytes")));
  }
  throw OutOfMemory(concat(need, needs.free_bytes, " bytes are free beside the model, of which ",
                           needs.default_percent, " % are taken by default: ", fits, "set ",
                           names("kv_bytes")));
}

// How to need less memory; only what the options have not done already.
std::string remedy(const EngineOptions& options) {
  const FieldNames& names = options.field_names;
  std::string text = concat("lower ", names("max_context"));
  if (!is_quantizing(options.weights)) text += concat(", use ", names("weights"), " int8");
  if (options.dtype == DType::f32) text += concat(", set ", names("dtype"), " to bf16");
  return text + ", or free memory";
}

}  // namespace

int64_t num_contexts(const EngineOptions& options) {
  const bool has_drafts = options.speculation != Speculation::off;
  const int64_t rows = has_drafts ? 1 + options.max_draft_tokens : 1;
  return std::max<int64_t>(1, options.max_batch / rows);
}

int64_t default_kv_percent(Device device) { return device.is_cpu() ? 25 : 80; }

int64_t num_kv_pages(const KvNeeds& needs) {
  const int64_t context_pages = (needs.max_context + needs.page_size - 1) / needs.page_size;
  const int64_t context_bytes = context_pages * needs.page_bytes;
  // A slot is page * page_size + row, in 32 bits.
  const int64_t most_pages = std::numeric_limits<int32_t>::max() / needs.page_size;
  const int64_t bytes =
      needs.kv_bytes > 0 ? needs.kv_bytes : needs.free_bytes / 100 * needs.default_percent;
  if (bytes < context_bytes || most_pages < context_pages) {
    refuse_one_context(needs, context_bytes, bytes);
  }
  if (needs.kv_bytes > needs.free_bytes) {
    throw OutOfMemory(concat(needs.names.prefix("engine"), needs.names("kv_bytes"), " is ",
                             needs.kv_bytes, "; ", needs.free_bytes,
                             " bytes are free beside the model: lower it"));
  }
  const int64_t num_pages = std::min(bytes / needs.page_bytes, most_pages);
  return needs.kv_bytes > 0 ? num_pages : std::min(num_pages, context_pages * needs.max_batch);
}

int64_t free_memory(Device device) {
  if (device.is_cpu()) {
    return std::min({available_on_machine(), left_in_container(), left_to_process()});
  }
  return free_device_bytes(device);
}

int64_t kernel_scratch_bytes(const model::ModelConfig& config, const EngineOptions& options) {
  if (options.device.is_cpu()) return 0;
  // Decode attention splits long sequences; every split stores partial sums for each head.
  constexpr int64_t kMostSplits = 64;
  constexpr int64_t kLeastBytes = int64_t{32} << 20;
  const int64_t partial_bytes = options.max_batch * config.num_heads * (config.head_dim + 2) *
                                static_cast<int64_t>(sizeof(float));
  return std::max(kLeastBytes, kMostSplits * partial_bytes);
}

MemoryNeeds memory_needs(const model::ModelConfig& config, const EngineOptions& options) {
  const model::BatchLimits limits = limits_of(options);
  const int64_t batch = model::batch_bytes(limits);
  const int64_t sampling =
      model::TokenSampler::device_bytes(sampler_limits_of(options, config.vocab));
  const model::ModelNeeds model = model::measure_model(config,
                                                       {.dtype = options.dtype,
                                                        .format = options.weights,
                                                        .weight_group = options.weight_group,
                                                        .activations = options.activations,
                                                        .device = options.device},
                                                       limits);
  MemoryNeeds needs;
  needs.weights = model.weights;
  needs.activations = model.activations + batch + sampling + kernel_scratch_bytes(config, options);
  if (options.device.is_cpu()) {
    needs.activations += 2 * batch;  // the staging copies are in the same memory
  } else {
    needs.host = model.host + 2 * batch;
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
                               .max_batch = num_contexts(options),
                               .kv_bytes = options.kv_bytes,
                               .free_bytes = std::max<int64_t>(0, free_bytes - tail_bytes),
                               .default_percent = default_kv_percent(options.device),
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
