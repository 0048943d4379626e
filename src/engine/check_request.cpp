// The limits of requests and options, in words.
// SPDX-License-Identifier: MIT
#include "engine/check_request.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/kv_layout.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

void check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  fail(concat("request: ", field, " is ", value, "; give ", low, " to ", high));
}

void check_tokens(const char* field, const std::vector<int32_t>& tokens, int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) continue;
    fail(concat("request: ", field, "[", i, "] is ", tokens[i], "; the vocabulary has ids 0 to ",
                vocab - 1));
  }
}

// Bytes of the character that begins with `lead`, or 0 where none does.
size_t character_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// Whole characters: one that begins or ends inside a character would cut the text there.
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
  if (std::ssize(request.stop) > kMaxStops) {
    fail(concat("request: stop has ", request.stop.size(), " strings; give at most ", kMaxStops));
  }
  for (size_t i = 0; i < request.stop.size(); ++i) {
    const std::string& stop = request.stop[i];
    if (stop.empty()) fail(concat("request: stop[", i, "] is empty; leave it out"));
    if (std::ssize(stop) > kMaxStopBytes) {
      fail(concat("request: stop[", i, "] has ", stop.size(), " bytes; give at most ",
                  kMaxStopBytes));
    }
    if (!is_whole_characters(stop)) {
      fail(concat("request: stop[", i, "] is not UTF-8; give whole characters"));
    }
  }
  if (!request.stop.empty() && !capacity.has_tokenizer) {
    fail("request: stop needs a tokenizer, and this model has none; use stop_tokens");
  }
  if (std::ssize(request.stop_tokens) > kMaxStopTokens) {
    fail(concat("request: stop_tokens has ", request.stop_tokens.size(), " ids; give at most ",
                kMaxStopTokens));
  }
  check_tokens("stop_tokens", request.stop_tokens, capacity.vocab);
}

void check_lengths(const Request& request, const Capacity& capacity) {
  const auto num_prompt = std::ssize(request.prompt);
  if (num_prompt == 0) fail("request: prompt is empty; give at least one token");
  check_tokens("prompt", request.prompt, capacity.vocab);
  const int64_t least = request.wants_prompt_logprobs ? 0 : 1;
  if (request.max_new_tokens < least) {
    fail(concat("request: max_new_tokens is ", request.max_new_tokens, "; give at least ", least,
                least > 0 ? " (0 is for wants_prompt_logprobs)" : ""));
  }
  const int64_t room = capacity.max_context - (request.max_new_tokens > 0 ? 1 : 0);
  if (num_prompt > room) {
    fail(concat("request: prompt has ", num_prompt, " tokens; a context of ", capacity.max_context,
                " has room for ", room, ": shorten it or raise max_context"));
  }
  if (request.min_new_tokens < 0) {
    fail(concat("request: min_new_tokens is ", request.min_new_tokens, "; give at least 0"));
  }
}

void check_beams(const Request& request, const Capacity& capacity) {
  check_range("beam_width", request.beam_width, 0, kMaxBeams);
  if (!std::isfinite(request.length_penalty)) {
    fail(concat("request: length_penalty is ", request.length_penalty, "; give a finite number"));
  }
  if (request.beam_width == 0) return;
  if (request.num_outputs > request.beam_width) {
    fail(concat("request: num_outputs is ", request.num_outputs, " of beam_width ",
                request.beam_width, "; ask for no more than the beams there are"));
  }
  const int64_t most =
      std::min({capacity.max_batch, capacity.max_step_tokens, capacity.max_step_logits});
  if (request.beam_width > most) {
    fail(concat("request: beam_width is ", request.beam_width, "; a step takes ", most,
                ": raise max_batch, max_step_tokens and max_step_logits"));
  }
  expects(request.stop.empty(), "request: stop is not for beam_width > 0; use stop_tokens");
  expects(request.max_new_tokens > 0, "request: max_new_tokens is 0; beam_width needs at least 1");
  const SamplingParams& sampling = request.sampling;
  if (!sampling.logit_bias.empty() || sampling.repetition_penalty != 1.0f ||
      sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f) {
    fail("request: logit_bias and penalties are not for beam_width > 0; leave them out");
  }
}

// The most pages it can come to hold. Beams share the prompt's full pages and nothing else for
// sure; siblings can be preempted one by one, so that one of them is enough.
int64_t num_pages_needed(const Request& request, const Capacity& capacity) {
  const auto num_prompt = std::ssize(request.prompt);
  const int64_t total = num_prompt + clipped_new_tokens(request, capacity.max_context);
  const int64_t num_pages = (total + capacity.page_size - 1) / capacity.page_size;
  if (request.beam_width == 0) return num_pages;
  const int64_t num_shared = num_prompt / capacity.page_size;
  return num_shared + request.beam_width * (num_pages - num_shared);
}

}  // namespace

int64_t clipped_new_tokens(const Request& request, int64_t max_context) {
  return std::min(request.max_new_tokens, max_context - std::ssize(request.prompt));
}

void check_request(const Request& request, const Capacity& capacity) {
  check_lengths(request, capacity);
  check_stops(request, capacity);
  check_range("num_outputs", request.num_outputs, 1, kMaxOutputs);
  if (request.num_outputs > capacity.max_batch) {
    fail(concat("request: num_outputs is ", request.num_outputs, "; a step takes ",
                capacity.max_batch, " sequences: raise max_batch"));
  }
  if (request.max_new_tokens == 0 && request.num_outputs > 1) {
    fail(concat("request: num_outputs is ", request.num_outputs,
                " with max_new_tokens 0; there is nothing to sample"));
  }
  check_beams(request, capacity);
  check_range("num_logprobs", request.num_logprobs, -1,
              std::min<int64_t>(kMaxLogprobs, capacity.vocab));
  check(request.sampling, capacity.vocab);
  const int64_t num_pages = num_pages_needed(request, capacity);
  if (num_pages > capacity.num_pages) {
    fail(concat("request: prompt, max_new_tokens and beam_width need ", num_pages,
                " pages of the KV cache, which has ", capacity.num_pages,
                ": lower max_new_tokens or raise kv_bytes"));
  }
}

void check_options(const EngineOptions& options) {
  const auto check_option = [](const char* field, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return;
    fail(concat("engine: ", field, " is ", value, "; give ", low, " to ", high));
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
    fail(concat("engine: step_timeout_s is ", timeout, "; give 0 for no limit, or up to 1000000"));
  }
  if (model::has_tails(options.kv_type) && options.page_size % kKvGroup != 0) {
    fail(concat("engine: page_size is ", options.page_size, "; kv_type ", name(options.kv_type),
                " takes multiples of ", kKvGroup));
  }
  const DType dtype = options.dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    fail(concat("engine: dtype is ", name(dtype), "; give f32, f16 or bf16"));
  }
}

}  // namespace tessera::engine
