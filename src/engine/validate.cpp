// Ranges and defaults of options, and limits of requests.
// SPDX-License-Identifier: MIT
#include "engine/validate.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/text.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

void check_tokens(const char* field, const std::vector<int32_t>& tokens, const Capacity& capacity) {
  const FieldNames& names = capacity.names;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < capacity.vocab) continue;
    fail(concat(names.prefix("request"), names.element(field, i), " is ", tokens[i],
                "; the vocabulary has ids 0 to ", capacity.vocab - 1));
  }
}

// Bytes of the UTF-8 character that begins with `lead`, or 0 if none does.
size_t character_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// A stop string that begins or ends inside a character would cut the text there.
bool is_whole_characters(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t count = character_bytes(static_cast<unsigned char>(text[i]));
    if (count == 0 || i + count > text.size()) return false;
    for (size_t j = 1; j < count; ++j) {
      if ((static_cast<unsigned char>(text[i + j]) & 0xc0) != 0x80) return false;
    }
    i += count;
  }
  return true;
}

void check_stops(const Request& request, const Capacity& capacity) {
  const FieldNames& names = capacity.names;
  const std::string who = names.prefix("request");
  if (std::ssize(request.stop) > kMaxStops) {
    fail(concat(who, names("stop"), " has ", request.stop.size(), " strings; give at most ",
                kMaxStops));
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string& stop = request.stop[i];
    const std::string which = names.element("stop", i);
    if (stop.empty()) fail(concat(who, which, " is empty; leave it out"));
    if (std::ssize(stop) > kMaxStopBytes) {
      fail(concat(who, which, " has ", stop.size(), " bytes; give at most ", kMaxStopBytes));
    }
    if (!is_whole_characters(stop)) {
      fail(concat(who, which, " is not UTF-8; give whole characters"));
    }
  }
  if (!request.stop.empty() && !capacity.has_tokenizer) {
    fail(concat(who, names("stop"), " needs a tokenizer, and this model has none; use ",
                names("stop_tokens")));
  }
  if (std::ssize(request.stop_tokens) > kMaxStopTokens) {
    fail(concat(who, names("stop_tokens"), " has ", request.stop_tokens.size(),
                " ids; give at most ", kMaxStopTokens));
  }
  check_tokens("stop_tokens", request.stop_tokens, capacity);
}

void check_new_tokens(const Request& request, const FieldNames& names) {
  const std::string who = names.prefix("request");
  const bool is_pooled = request.pooling != Pooling::none;
  const int64_t least = request.wants_prompt_logprobs || is_pooled ? 0 : 1;
  if (request.max_new_tokens < least) {
    const bool has_hint = least > 0 && !names.name;
    fail(concat(who, names("max_new_tokens"), " is ", request.max_new_tokens, "; give at least ",
                least, has_hint ? " (0 is for wants_prompt_logprobs and pooling)" : ""));
  }
  if (is_pooled && request.max_new_tokens > 0) {
    fail(concat(who, names("max_new_tokens"), " is ", request.max_new_tokens, " with ",
                names("pooling"), ", which generates nothing; give 0"));
  }
  if (request.min_new_tokens < 0) {
    fail(concat(who, names("min_new_tokens"), " is ", request.min_new_tokens, "; give at least 0"));
  }
}

void check_prompt(const Request& request, const Capacity& capacity) {
  const FieldNames& names = capacity.names;
  const std::string who = names.prefix("request");
  const auto num_prompt = std::ssize(request.prompt);
  if (num_prompt == 0) fail(concat(who, names("prompt"), " is empty; give at least one token"));
  check_tokens("prompt", request.prompt, capacity);
  const int64_t room = capacity.max_context - (request.max_new_tokens > 0 ? 1 : 0);
  if (num_prompt > room) {
    fail(concat(who, names("prompt"), " has ", num_prompt, " tokens; a context of ",
                capacity.max_context, " has room for ", room, ": shorten it or raise ",
                names("max_context")));
  }
}

void check_beams(const Request& request, const Capacity& capacity) {
  const FieldNames& names = capacity.names;
  const std::string who = names.prefix("request");
  if (!std::isfinite(request.length_penalty)) {
    fail(concat(who, names("length_penalty"), " is ", request.length_penalty,
                "; give a finite number"));
  }
  if (request.beam_width == 0) return;
  const std::string beams = names("beam_width");
  if (request.num_outputs > request.beam_width) {
    fail(concat(who, names("num_outputs"), " is ", request.num_outputs, " of ", beams, " ",
                request.beam_width, "; ask for no more than the beams there are"));
  }
  const int64_t most =
      std::min({capacity.max_batch, capacity.max_step_tokens, capacity.max_step_logits});
  if (request.beam_width > most) {
    fail(concat(who, beams, " is ", request.beam_width, "; a step takes ", most,
                ": raise max_batch, max_step_tokens and max_step_logits"));
  }
  if (!request.stop.empty()) {
    fail(concat(who, names("stop"), " is not for ", beams, " > 0; use ", names("stop_tokens")));
  }
  if (request.max_new_tokens <= 0) {
    fail(concat(who, names("max_new_tokens"), " is 0; ", beams, " needs at least 1"));
  }
  const SamplingParams& sampling = request.sampling;
  if (!sampling.logit_bias.empty() || sampling.repetition_penalty != 1.0f ||
      sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f) {
    fail(concat(who, names("logit_bias"), " and penalties are not for ", beams,
                " > 0; leave them out"));
  }
}

void check_constraint(const Request& request, const Capacity& capacity) {
  if (!request.constraint && !request.constraint_spec) return;
  const FieldNames& names = capacity.names;
  const std::string who = names.prefix("request"), field = names("constraint");
  if (request.constraint && request.constraint_spec) {
    fail(concat(who, field, " is given compiled and as a description; give one of them"));
  }
  if (request.beam_width > 0) {
    fail(concat(who, field, " is not for ", names("beam_width"), " > 0; leave one of them out"));
  }
  if (!capacity.has_tokenizer) {
    fail(concat(who, field, " needs a tokenizer, and this model has none"));
  }
}

// The most pages the request can need to make progress. Beams are sure to share only the full pages
// of the prompt. Siblings can be preempted one by one, so pages for one of them are enough.
int64_t num_pages_needed(const Request& request, const Capacity& capacity) {
  const auto num_prompt = std::ssize(request.prompt);
  const int64_t total = num_prompt + clipped_new_tokens(request, capacity.max_context);
  const int64_t num_pages = (total + capacity.page_size - 1) / capacity.page_size;
  if (request.beam_width == 0) return num_pages;
  const int64_t num_shared = num_prompt / capacity.page_size;
  return num_shared + request.beam_width * (num_pages - num_shared);
}

}  // namespace

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
  check_option("max_draft_tokens", options.max_draft_tokens, 1, kMaxDraftTokens);
  check_option("weight_group", options.weight_group, 8, 65536);
  const double timeout = options.step_timeout_s.value_or(0);
  if (!(timeout >= 0 && timeout <= 1e6)) {
    fail(concat(who, names("step_timeout_s"), " is ", timeout,
                "; give 0 for no limit, or up to 1000000"));
  }
  if (model::has_tails(options.kv_type) && options.page_size % kKvGroup != 0) {
    fail(concat(who, names("page_size"), " is ", options.page_size, "; ", names("kv_type"), " ",
                name(options.kv_type), " takes multiples of ", kKvGroup));
  }
  if (options.speculation == Speculation::draft && model::has_tails(options.kv_type)) {
    fail(concat(who, names("speculation"), " draft is not for ", names("kv_type"), " ",
                name(options.kv_type), "; leave one of them out"));
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
  if (!options.runs_ahead) options.runs_ahead = !options.device.is_cpu();
  if (!options.step_timeout_s) options.step_timeout_s = options.device.is_cpu() ? 0.0 : 120.0;
  return options;
}

model::BatchLimits limits_of(const EngineOptions& options) {
  return {.tokens = options.max_step_tokens,
          .batch = options.max_batch,
          .max_pages = (options.max_context + options.page_size - 1) / options.page_size,
          .logits = options.max_step_logits,
          .max_positions = options.max_context,
          .kv_type = options.kv_type,
          .is_fused = options.fuses_steps};
}

model::SamplerLimits sampler_limits_of(const EngineOptions& options, int64_t vocab) {
  return {.draws = options.max_batch,
          .logits = options.max_step_logits,
          .vocab = vocab,
          .context = options.max_context};
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

int64_t clipped_new_tokens(const Request& request, int64_t max_context) {
  return std::min(request.max_new_tokens, max_context - std::ssize(request.prompt));
}

void check_settings(const Request& request, const Capacity& capacity) {
  const FieldNames& names = capacity.names;
  const std::string who = names.prefix("request");
  const auto check_range = [&](const char* field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    fail(concat(who, names(field), " is ", value, "; give ", low, " to ", high));
  };
  check_new_tokens(request, names);
  check_stops(request, capacity);
  check_range("num_outputs", request.num_outputs, 1, kMaxOutputs);
  if (request.num_outputs > capacity.max_batch) {
    fail(concat(who, names("num_outputs"), " is ", request.num_outputs, "; a step takes ",
                capacity.max_batch, " sequences: raise max_batch"));
  }
  if (request.num_outputs > capacity.max_step_logits) {
    fail(concat(who, names("num_outputs"), " is ", request.num_outputs, "; a step has ",
                capacity.max_step_logits, " rows of logits: raise max_step_logits"));
  }
  if (request.max_new_tokens == 0 && request.num_outputs > 1) {
    fail(concat(who, names("num_outputs"), " is ", request.num_outputs, " with ",
                names("max_new_tokens"), " 0; there is nothing to sample"));
  }
  check_range("beam_width", request.beam_width, 0, kMaxBeams);
  check_beams(request, capacity);
  check_constraint(request, capacity);
  check_range("num_logprobs", request.num_logprobs, -1,
              std::min<int64_t>(kMaxLogprobs, capacity.vocab));
  check(request.sampling, capacity.vocab, names);
}

void check_request(const Request& request, const Capacity& capacity) {
  check_prompt(request, capacity);
  check_settings(request, capacity);
  const int64_t num_pages = num_pages_needed(request, capacity);
  if (num_pages > capacity.num_pages) {
    const FieldNames& names = capacity.names;
    fail(concat(names.prefix("request"), names("prompt"), ", ", names("max_new_tokens"), " and ",
                names("beam_width"), " need ", num_pages, " pages of the KV cache, which has ",
                capacity.num_pages, ": lower ", names("max_new_tokens"), " or raise ",
                names("kv_bytes")));
  }
}

}  // namespace tessera::engine
