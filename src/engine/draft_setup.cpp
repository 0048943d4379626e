// Vocabularies compared, and memory shared between a target and its draft.
// SPDX-License-Identifier: MIT
#include "engine/draft_setup.h"

#include <algorithm>
#include <string>

#include "core/text.h"
#include "engine/early_start.h"
#include "engine/validate.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

constexpr const char* kRemedy = "; give a draft of the same family";

std::string show_token(const Tokenizer& tokenizer, int32_t id) {
  return id < tokenizer.num_ids() ? in_quotes(tokenizer.token_text(id)) : "missing";
}

int64_t token_bytes(const model::ModelConfig& config, const EngineOptions& options) {
  return model::kv_page_bytes(
             config, config.num_kv_heads,
             {.page_size = options.page_size, .dtype = options.dtype, .type = options.kv_type}) /
         options.page_size;
}

}  // namespace

void check_draft_vocab(const model::ModelConfig& target, const model::ModelConfig& draft,
                       const EngineOptions& options) {
  if (draft.vocab == target.vocab) return;
  const FieldNames& names = options.field_names;
  fail(concat(names.prefix("engine"), names("draft_folder"), ": the draft model has vocab_size ",
              draft.vocab, " and the model ", target.vocab, kRemedy));
}

void check_draft_tokenizer(const Tokenizer& tokenizer, const std::filesystem::path& target,
                           const EngineOptions& options) {
  const std::filesystem::path file = "tokenizer.json";
  const Tokenizer other = read_tokenizer(options.draft_folder);
  const FieldNames& names = options.field_names;
  const int32_t num_ids = std::max(tokenizer.num_ids(), other.num_ids());
  for (int32_t id = 0; id < num_ids; ++id) {
    const bool is_known = id < tokenizer.num_ids() && id < other.num_ids();
    if (is_known && tokenizer.token_text(id) == other.token_text(id)) continue;
    fail(concat(names.prefix("engine"), names("draft_folder"), ": token ", id, " is ",
                show_token(other, id), " in ", shown_path((options.draft_folder / file).native()),
                " and ", show_token(tokenizer, id), " in ", shown_path((target / file).native()),
                kRemedy));
  }
}

EngineOptions draft_options(const EngineOptions& options, const model::ModelConfig& target,
                            const model::ModelConfig& draft, int64_t free_bytes) {
  EngineOptions own = options;
  own.speculation = Speculation::off;
  own.kv_type = KvFormat::plain;
  own.max_context = std::min(options.max_context, draft.max_positions);
  own.max_step_logits = options.max_batch;

  const int64_t context = (own.max_context + own.page_size - 1) / own.page_size * own.page_size;
  const int64_t own_bytes = token_bytes(draft, own);
  const int64_t target_bytes = token_bytes(target, options);
  const int64_t num_tokens = options.kv_bytes > 0
                                 ? options.kv_bytes / target_bytes
                                 : std::min(num_contexts(options) * context,
                                            free_bytes / 100 * default_kv_percent(options.device) /
                                                (own_bytes + target_bytes));
  own.kv_bytes = std::max(num_tokens, context) * own_bytes;
  return own;
}

void check_memory_of_both(const model::ModelConfig& target, const model::ModelConfig& draft,
                          const EngineOptions& options) {
  const int64_t free_host_bytes = free_memory(cpu_device());
  const int64_t free_bytes =
      options.device.is_cpu() ? free_host_bytes : free_memory(options.device);
  const EngineOptions least = draft_options(options, target, draft, /*free_bytes=*/0);
  check_memory(draft, least, free_bytes, free_host_bytes);
  const MemoryNeeds needs = memory_needs(draft, least);
  const int64_t taken = needs.weights + needs.activations + least.kv_bytes;
  check_memory(target, options, free_bytes - taken, free_host_bytes - needs.host);
}

}  // namespace tessera::engine
