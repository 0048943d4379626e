// Engines and generations through the C ABI.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <utility>

#include "c_api/engine_handle.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {
namespace {

Request make_request(const TesseraEngine& engine, const TesseraRequest& c) {
  const int num_prompts = (c.text != nullptr ? 1 : 0) + (c.tokens != nullptr ? 1 : 0) +
                          (c.messages_json != nullptr ? 1 : 0);
  if (num_prompts != 1) {
    fail(concat("request: ", num_prompts,
                " of text, tokens and messages_json are given; give exactly one"));
  }
  Request request = read_request(c);
  if (c.text != nullptr) {
    request.prompt = engine.prompts.continuation(read_text(c.text, c.text_bytes, "request: text"),
                                                 c.has_special != 0);
  } else if (c.tokens != nullptr) {
    request.prompt = read_array(c.tokens, c.num_tokens, "request: tokens");
  } else {
    request.prompt = engine.host->tokenizer().encode(
        engine.render(c.messages_json, c.template_json, /*add_generation_prompt=*/true));
  }
  return request;
}

// Spreads an output over the arrays of C.
void describe(TesseraGeneration& generation, TesseraOutput& c) {
  const SequenceOutput& output = generation.output;
  const auto num_top = static_cast<size_t>(generation.num_top);
  generation.tokens.clear();
  generation.logprobs.clear();
  generation.top_tokens.assign(output.tokens.size() * num_top, -1);
  generation.top_logprobs.assign(output.tokens.size() * num_top, 0.0f);
  for (size_t i = 0; i < output.tokens.size(); ++i) {
    const OutputToken& token = output.tokens[i];
    generation.tokens.push_back(token.token);
    generation.logprobs.push_back(token.logprob);
    for (size_t j = 0; j < std::min(num_top, token.top.size()); ++j) {
      generation.top_tokens[i * num_top + j] = token.top[j].token;
      generation.top_logprobs[i * num_top + j] = token.top[j].logprob;
    }
  }
  c.index = output.index;
  c.finish = static_cast<int32_t>(output.finish);
  c.num_top = generation.num_top;
  c.text = output.text.c_str();
  c.text_bytes = std::ssize(output.text);
  c.tokens = generation.tokens.data();
  c.logprobs = generation.has_logprobs ? generation.logprobs.data() : nullptr;
  c.top_tokens = generation.top_tokens.data();
  c.top_logprobs = generation.top_logprobs.data();
  c.num_tokens = std::ssize(output.tokens);
  c.prompt_logprobs = output.prompt_logprobs.data();
  c.num_prompt_logprobs = std::ssize(output.prompt_logprobs);
  c.num_prompt_tokens = output.num_prompt_tokens;
  c.num_cached_tokens = output.num_cached_tokens;
  c.error = output.error.c_str();
  c.score = output.score;
}

static_assert(static_cast<int>(FinishReason::none) == TESSERA_FINISH_NONE);
static_assert(static_cast<int>(FinishReason::stop) == TESSERA_FINISH_STOP);
static_assert(static_cast<int>(FinishReason::length) == TESSERA_FINISH_LENGTH);
static_assert(static_cast<int>(FinishReason::cancelled) == TESSERA_FINISH_CANCELLED);
static_assert(static_cast<int>(FinishReason::deadline) == TESSERA_FINISH_DEADLINE);
static_assert(static_cast<int>(FinishReason::error) == TESSERA_FINISH_ERROR);

}  // namespace
}  // namespace tessera::c_api

using namespace tessera;
using namespace tessera::c_api;

int tessera_engine_abi_version(void) { return TESSERA_ENGINE_ABI_VERSION; }

void tessera_engine_options_init(TesseraEngineOptions* options) {
  if (options == nullptr) return;
  const EngineOptions defaults;
  *options = {};
  options->struct_size = sizeof *options;
  options->max_batch = defaults.max_batch;
  options->max_draft_tokens = defaults.max_draft_tokens;
  options->use_prefix_cache = defaults.use_prefix_cache ? 1 : 0;
  options->use_graphs = defaults.use_graphs ? 1 : 0;
  options->runs_ahead = -1;
  options->step_timeout_s = -1;
}

void tessera_request_init(TesseraRequest* request) {
  if (request == nullptr) return;
  const Request defaults;
  *request = {};
  request->struct_size = sizeof *request;
  request->text_bytes = -1;
  request->temperature = defaults.sampling.temperature;
  request->top_k = defaults.sampling.top_k;
  request->top_p = defaults.sampling.top_p;
  request->min_p = defaults.sampling.min_p;
  request->typical_p = defaults.sampling.typical_p;
  request->repetition_penalty = defaults.sampling.repetition_penalty;
  request->presence_penalty = defaults.sampling.presence_penalty;
  request->frequency_penalty = defaults.sampling.frequency_penalty;
  request->max_new_tokens = defaults.max_new_tokens;
  request->min_new_tokens = defaults.min_new_tokens;
  request->num_outputs = defaults.num_outputs;
  request->length_penalty = defaults.length_penalty;
  request->num_logprobs = defaults.num_logprobs;
}

TesseraStatus tessera_engine_create(const char* folder, const TesseraEngineOptions* options,
                                    TesseraEngine** engine) {
  return guarded([&] {
    given(engine, "engine_create: engine");
    *engine = nullptr;
    const std::string path(read_text(folder, -1, "engine_create: folder"));
    *engine = new TesseraEngine(path, options);
  });
}

void tessera_engine_destroy(TesseraEngine* engine) { delete engine; }

TesseraStatus tessera_engine_info(const TesseraEngine* engine, TesseraEngineInfo* info) {
  return guarded([&] {
    check_struct_size(info, "engine_info: info", "TesseraEngineInfo");
    const TesseraEngine& one = given(engine, "engine_info: engine");
    const Engine& loaded = one.host->engine();
    const Tokenizer& tokenizer = one.host->tokenizer();
    info->vocab = loaded.vocab();
    info->max_context = loaded.max_context();
    info->device_index = loaded.device().is_cpu() ? -1 : loaded.device().index;
    info->has_chat_template = one.settings.template_source.has_value() ? 1 : 0;
    info->bos_token = tokenizer.find(one.settings.bos_token).value_or(-1);
    info->eos_token = tokenizer.find(one.settings.eos_token).value_or(-1);
  });
}

TesseraStatus tessera_engine_stats(TesseraEngine* engine, TesseraEngineStats* stats) {
  return guarded([&] {
    check_struct_size(stats, "engine_stats: stats", "TesseraEngineStats");
    const EngineMetrics found = given(engine, "engine_stats: engine").host->metrics();
    stats->is_dead = found.is_dead ? 1 : 0;
    stats->num_waiting = found.num_waiting;
    stats->num_running = found.num_running;
    stats->num_finished = found.num_finished;
    stats->num_cancelled = found.num_cancelled;
    stats->num_preemptions = found.num_preemptions;
    stats->num_steps = found.num_steps;
    stats->num_prompt_tokens = found.num_prompt_tokens;
    stats->num_replayed_tokens = found.num_replayed_tokens;
    stats->num_cached_tokens = found.num_cached_tokens;
    stats->num_generated_tokens = found.num_generated_tokens;
    stats->num_pages = found.num_pages;
    stats->num_held_pages = found.num_held_pages;
    stats->num_idle_pages = found.num_idle_pages;
    stats->num_shared_pages = found.num_shared_pages;
    stats->kv_bytes = found.kv_bytes;
    stats->kv_bytes_per_token = found.kv_bytes_per_token;
    stats->num_held_tokens = found.num_held_tokens;
    stats->weight_bytes = found.weight_bytes;
    stats->activation_bytes = found.activation_bytes;
    stats->num_graphs = found.num_graphs;
    stats->num_replays = found.num_replays;
    stats->num_wasted_rows = found.num_wasted_rows;
    stats->num_drafted_tokens = found.num_drafted_tokens;
    stats->num_accepted_tokens = found.num_accepted_tokens;
    stats->device_bytes = found.device_bytes;
    stats->peak_device_bytes = found.peak_device_bytes;
    stats->peak_host_bytes = found.peak_host_bytes;
    stats->kv_waste = found.kv_waste;
    stats->kv_share_of_contiguous = found.kv_share_of_contiguous;
  });
}

TesseraStatus tessera_engine_submit(TesseraEngine* engine, const TesseraRequest* requests,
                                    int64_t count, TesseraGeneration** generations) {
  return guarded([&] {
    TesseraEngine& one = given(engine, "engine_submit: engine");
    one.host->check_process();
    given(requests, "engine_submit: requests");
    given(generations, "engine_submit: generations");
    if (count < 1) fail(concat("engine_submit: count is ", count, "; want 1 or more"));
    std::vector<Request> made;
    std::vector<std::unique_ptr<TesseraGeneration>> handles;
    const auto* address = reinterpret_cast<const char*>(requests);
    for (int64_t i = 0; i < count; ++i) {
      const auto* request = reinterpret_cast<const TesseraRequest*>(
          address + i * static_cast<int64_t>(requests->struct_size));
      const TesseraRequest whole = read_struct(request, tessera_request_init, "TesseraRequest");
      made.push_back(make_request(one, whole));
      auto& handle = handles.emplace_back(std::make_unique<TesseraGeneration>());
      handle->host = one.host;
      handle->num_top = std::max(whole.num_logprobs, 0);
      handle->has_logprobs = whole.num_logprobs >= 0;
    }
    std::vector<std::shared_ptr<OutputStream>> streams = one.host->submit(std::move(made));
    for (size_t i = 0; i < streams.size(); ++i) {
      handles[i]->stream = std::move(streams[i]);
      generations[i] = handles[i].release();
    }
  });
}

TesseraStatus tessera_generation_next(TesseraGeneration* generation, double timeout_s,
                                      int32_t whole, TesseraOutput* output) {
  return guarded([&] {
    check_struct_size(output, "generation_next: output", "TesseraOutput");
    TesseraGeneration& one = given(generation, "generation_next: generation");
    std::optional<SequenceOutput> taken = one.stream->take(timeout_s, whole != 0);
    one.output = taken ? std::move(*taken) : SequenceOutput{.index = -1};
    describe(one, *output);
    output->is_last = one.stream->is_over() ? 1 : 0;
  });
}

TesseraStatus tessera_generation_embedding(const TesseraGeneration* generation, float* values,
                                           int64_t capacity, int64_t* count) {
  return guarded([&] {
    const TesseraGeneration& one = given(generation, "generation_embedding: generation");
    write_array<float>(one.output.embedding, values, capacity, count);
  });
}

TesseraStatus tessera_generation_descriptor(TesseraGeneration* generation, int* descriptor) {
  return guarded([&] {
    given(descriptor, "generation_descriptor: descriptor");
    *descriptor = given(generation, "generation_descriptor: generation").stream->descriptor();
  });
}

TesseraStatus tessera_generation_cancel(TesseraGeneration* generation) {
  return guarded([&] {
    const TesseraGeneration& one = given(generation, "generation_cancel: generation");
    if (const auto host = one.host.lock()) host->cancel(one.stream);
  });
}

void tessera_generation_destroy(TesseraGeneration* generation) {
  if (generation == nullptr) return;
  tessera_generation_cancel(generation);
  delete generation;
}
