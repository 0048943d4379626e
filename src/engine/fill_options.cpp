// Ranges and defaults of engine options.
// SPDX-License-Identifier: MIT
#include "engine/fill_options.h"

#include "core/text.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {

void check_options(const EngineOptions& options) {
  const FieldNames& names = options.field_names;
  const std::string who = names.prefix("engine");
  const auto check_option = [&](const char* field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    fail(concat(who, names(field), " is ", value, "; give ", low, " to ", high));
  };
  check_option("max_context", options.max_context, 0, int64_t{1} << 30);
  check_option("kv_bytes", options.kv_bytes, 0, int64_t{1} << 50);
  check_option("page_size", options.page_size, 1, 4096);
  check_option("max_batch", options.max_batch, 1, 65536);
  check_option("max_step_tokens", options.max_step_tokens, 1, int64_t{1} << 24);
  check_option("max_step_logits", options.max_step_logits, 0, int64_t{1} << 24);
  check_option("max_queue", options.max_queue, 1, int64_t{1} << 30);
  const double timeout = options.step_timeout_s.value_or(0);
  if (!(timeout >= 0 && timeout <= 1e6)) {
    fail(concat(who, names("step_timeout_s"), " is ", timeout,
                "; give 0 for no limit, or up to 1000000"));
  }
  if (model::has_tails(options.kv_type) && options.page_size % kKvGroup != 0) {
    fail(concat(who, names("page_size"), " is ", options.page_size, "; ", names("kv_type"), " ",
                name(options.kv_type), " takes multiples of ", kKvGroup));
  }
  const DType dtype = options.dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    fail(concat(who, names("dtype"), " is ", name(dtype), "; give f32, f16 or bf16"));
  }
}

EngineOptions fill_options(EngineOptions options, const model::ModelConfig& config) {
  check_options(options);
  if (options.max_context == 0) options.max_context = config.max_positions;
  if (options.max_context > config.max_positions) {
    const FieldNames& names = options.field_names;
    fail(concat(names.prefix("engine"), names("max_context"), " is ", options.max_context,
                "; the model was made for ", config.max_positions, " tokens"));
  }
  if (options.max_step_logits == 0) options.max_step_logits = options.max_batch;
  if (!options.now) options.now = [] { return Clock::now(); };
  if (!options.step_timeout_s) options.step_timeout_s = options.device.is_cpu() ? 0.0 : 120.0;
  return options;
}

model::BatchLimits limits_of(const EngineOptions& options) {
  return {.tokens = options.max_step_tokens,
          .batch = options.max_batch,
          .max_pages = (options.max_context + options.page_size - 1) / options.page_size,
          .logits = options.max_step_logits,
          .max_positions = options.max_context,
          .kv_type = options.kv_type};
}

Capacity capacity_of(const EngineOptions& options, int64_t vocab, bool has_tokenizer) {
  return {.vocab = vocab,
          .max_context = options.max_context,
          .max_batch = options.max_batch,
          .max_step_tokens = options.max_step_tokens,
          .max_step_logits = options.max_step_logits,
          .page_size = options.page_size,
          .has_tokenizer = has_tokenizer,
          .names = options.field_names};
}

}  // namespace tessera::engine
