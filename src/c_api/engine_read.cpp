// Options, requests and messages of C, checked where C++ would not check them.
// SPDX-License-Identifier: MIT
#include "c_api/engine_read.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>

#include "core/parallel.h"
#include "core/text.h"
#include "engine/make_engine.h"
#include "model/config.h"
#include "tessera/core/error.h"
#include "tessera/ops/kv_format.h"
#include "tessera/ops/weight_format.h"

namespace tessera::c_api {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr double kMaxSeconds = 1e6;

template <class Values>
[[noreturn]] void refuse_name(std::string_view field, std::string_view given, const Values& known) {
  std::string names;
  for (const auto value : known) names += concat(names.empty() ? "" : ", ", name(value));
  fail(concat("engine: ", field, " is '", shown(given), "'; want one of ", names));
}

DType read_dtype(std::string_view text) {
  constexpr DType kKnown[] = {DType::bf16, DType::f16, DType::f32};
  for (const DType dtype : kKnown) {
    if (text == name(dtype)) return dtype;
  }
  refuse_name("dtype", text, kKnown);
}

Device read_device(std::string_view text) {
  if (text == "cpu") return cpu_device();
  if (text == "cuda") return cuda_device();
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::string_view digits = text.substr(kPrefix.size());
    int index = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    if (error == std::errc{} && end == digits.end() && index >= 0) return cuda_device(index);
  }
  fail(concat("engine: device is '", shown(text), "'; want auto, cpu, cuda or cuda:0"));
}

Speculation read_speculation(std::string_view text) {
  if (text == "off") return Speculation::off;
  if (text == "lookup") return Speculation::lookup;
  fail(concat("engine: speculation is '", shown(text), "'; want off or lookup"));
}

std::string_view or_default(const char* text, std::string_view value) {
  return text == nullptr ? value : std::string_view(text);
}

}  // namespace

std::string_view read_text(const char* text, int64_t num_bytes, std::string_view what) {
  if (text == nullptr) fail(concat(what, " is NULL"));
  if (num_bytes < -1) fail(concat(what, " has ", num_bytes, " bytes; give -1 for up to its NUL"));
  return num_bytes == -1 ? std::string_view(text)
                         : std::string_view(text, static_cast<size_t>(num_bytes));
}

EngineOptions read_options(const TesseraEngineOptions* given, const std::string& folder) {
  const TesseraEngineOptions c =
      read_struct(given, tessera_engine_options_init, "TesseraEngineOptions");
  EngineOptions options;
  options.dtype = read_dtype(or_default(c.dtype, "bf16"));
  const std::string_view weights = or_default(c.weights, "stored"), kv = or_default(c.kv, "plain");
  if (const auto format = find_weight_format(weights)) {
    options.weights = *format;
  } else {
    refuse_name("weights", weights,
                std::views::transform(kWeightFormats, &WeightFormatName::format));
  }
  const std::string_view activations = or_default(c.activations, "auto");
  if (const auto format = find_activation_format(activations)) {
    options.activations = *format;
  } else {
    refuse_name("activations", activations,
                std::views::transform(kActivationFormats, &ActivationFormatName::format));
  }
  if (const auto format = find_kv_format(kv)) {
    options.kv_type = *format;
  } else {
    refuse_name("kv", kv, kAllKvFormats);
  }
  options.page_size = c.page_size > 0 ? c.page_size : options.kv_type == KvFormat::int4 ? 32 : 16;
  options.speculation = read_speculation(or_default(c.speculation, "off"));
  options.max_context = c.max_context;
  options.kv_bytes = c.kv_bytes;
  options.max_batch = c.max_batch;
  options.max_step_logits = c.max_step_logits;
  options.max_draft_tokens = c.max_draft_tokens;
  options.check_weights = c.check_weights != 0;
  options.use_prefix_cache = c.use_prefix_cache != 0;
  options.use_graphs = c.use_graphs != 0;
  if (c.runs_ahead >= 0) options.runs_ahead = c.runs_ahead != 0;
  if (c.step_timeout_s >= 0) options.step_timeout_s = c.step_timeout_s;
  if (c.on_load != nullptr) {
    options.on_load = [c](int64_t done, int64_t total) { c.on_load(c.user, done, total); };
  }
  if (c.num_threads < 0 || c.num_threads > kMaxThreads) {
    fail(concat("engine: num_threads is ", c.num_threads, "; want 0 to ", kMaxThreads));
  }
  if (c.num_threads > 0) set_num_threads(static_cast<int>(c.num_threads));

  const std::string_view device = or_default(c.device, "auto");
  options.device = device == "auto"
                       ? engine::choose_device(model::load_config(folder), options).device
                       : read_device(device);
  // Every step reads all weights. A GPU needs more tokens per step than a CPU to be busy.
  options.max_step_tokens = c.max_step_tokens > 0     ? c.max_step_tokens
                            : options.device.is_cpu() ? 512
                                                      : 2048;
  if (options.speculation != Speculation::off && options.max_draft_tokens > 0) {
    options.max_batch *= 1 + options.max_draft_tokens;  // each sequence needs rows for its drafts
    options.max_step_tokens = std::max(options.max_step_tokens, options.max_batch);
  }
  return options;
}

Request read_request(const TesseraRequest& c) {
  Request request;
  SamplingParams& sampling = request.sampling;
  sampling.temperature = c.temperature;
  sampling.top_k = c.top_k;
  sampling.top_p = c.top_p;
  sampling.min_p = c.min_p;
  sampling.typical_p = c.typical_p;
  sampling.repetition_penalty = c.repetition_penalty;
  sampling.presence_penalty = c.presence_penalty;
  sampling.frequency_penalty = c.frequency_penalty;
  const auto tokens = read_array(c.bias_tokens, c.num_biases, "request: bias_tokens");
  const auto values = read_array(c.bias_values, c.num_biases, "request: bias_values");
  for (size_t i = 0; i < tokens.size(); ++i) {
    sampling.logit_bias.emplace_back(tokens[i], values[i]);
  }
  if (c.has_seed != 0) sampling.seed = c.seed;
  request.max_new_tokens = c.max_new_tokens;
  request.min_new_tokens = c.min_new_tokens;
  for (const char* stop : read_array(c.stop, c.num_stop, "request: stop")) {
    request.stop.emplace_back(read_text(stop, -1, "request: a stop string"));
  }
  request.stop_tokens = read_array(c.stop_tokens, c.num_stop_tokens, "request: stop_tokens");
  request.ignores_eos = c.ignores_eos != 0;
  request.num_outputs = c.num_outputs;
  request.beam_width = c.beam_width;
  request.length_penalty = c.length_penalty;
  request.num_logprobs = c.num_logprobs;
  request.wants_prompt_logprobs = c.wants_prompt_logprobs != 0;
  request.pooling = to_enum(c.pooling, Pooling::mean, "request: pooling");
  request.priority = c.priority;
  if (!(c.timeout_s >= 0 && c.timeout_s <= kMaxSeconds)) {
    fail(concat("request: timeout_s is ", c.timeout_s, "; want 0 for none, or up to 1000000"));
  }
  if (c.timeout_s > 0) {
    const std::chrono::duration<double> limit(c.timeout_s);
    request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  }
  if (c.cache_salt != nullptr) request.cache_salt = c.cache_salt;
  return request;
}

std::vector<ChatMessage> read_messages(const char* json) {
  using Json = nlohmann::json;
  const std::string_view text = read_text(json, -1, "messages_json");
  const Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) {
    fail(concat("messages_json is '", shown(text),
                R"('; want a list such as [{"role": "user", "content": "Hello"}])"));
  }
  std::vector<ChatMessage> messages;
  for (const Json& one : list) {
    if (!one.is_object() || !one.contains("role") || !one["role"].is_string()) {
      fail(concat("messages_json: message ", messages.size(), " is ", shown(one.dump()),
                  R"(; want an object with "role" and "content")"));
    }
    ChatMessage& message = messages.emplace_back();
    message.role = one["role"].get<std::string>();
    if (one.contains("content") && one["content"].is_string()) {
      message.content = one["content"].get<std::string>();
    }
    message.fields_json = one.dump();
  }
  return messages;
}

}  // namespace tessera::c_api
