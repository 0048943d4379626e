// Bodies of requests to what the engine takes.
// SPDX-License-Identifier: MIT
#include "server/generation_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "server/constraint.h"
#include "server/json_fields.h"

namespace tessera::server {
namespace {

using Name = std::pair<std::string_view, std::string_view>;

// What a client calls the engine's fields; fields of options go by their flags.
constexpr std::array kNames = {
    Name{"max_new_tokens", "max_tokens"},  Name{"min_new_tokens", "min_tokens"},
    Name{"stop_tokens", "stop_token_ids"}, Name{"num_outputs", "n"},
    Name{"kv_bytes", "--kv-bytes"},        Name{"max_context", "--context"},
};

std::string client_name(std::string_view field, Api api) {
  if (field == "prompt" && api == Api::chat) return "messages";
  if (field == "num_logprobs") return api == Api::chat ? "top_logprobs" : "logprobs";
  const auto found = std::ranges::find(kNames, field, &Name::first);
  return std::string(found == kNames.end() ? field : found->second);
}

// Runs a check of the engine, whose messages begin with the field that is wrong.
void check_by_engine(const Request& request, const ServedModel& model, Api api) {
  engine::Capacity capacity = model.capacity;
  std::vector<std::string> named;
  capacity.names = {[&](std::string_view field) {
    named.push_back(client_name(field, api));
    return named.back();
  }};
  try {
    engine::check_request(request, capacity);
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    const auto begins = [&](const std::string& name) { return message.starts_with(name); };
    const auto found = std::ranges::find_if(named, begins);
    throw ApiError(400, message, found == named.end() ? std::string() : *found);
  }
}

void read_logit_bias(Fields& fields, SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) refuse_value("logit_bias", *bias, "an object of token ids and biases");
  for (const auto& [key, value] : bias->items()) {
    int32_t token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc{} || end != key.data() + key.size()) {
      throw ApiError(400, concat("logit_bias has the key ", in_quotes(key), "; give token ids"),
                     "logit_bias");
    }
    if (!value.is_number()) refuse_value("logit_bias", value, "numbers from -100 to 100");
    sampling.logit_bias.emplace_back(token, value.get<float>());
  }
}

int32_t small(Fields& fields, const char* name, int64_t otherwise) {
  const int64_t value = fields.integer(name, otherwise);
  return static_cast<int32_t>(std::clamp<int64_t>(value, -(int64_t{1} << 30), int64_t{1} << 30));
}

void read_sampling(Fields& fields, SamplingParams& sampling) {
  const auto share = [&](const char* name, float otherwise) {
    return static_cast<float>(fields.number(name, otherwise));
  };
  sampling.temperature = share("temperature", 1.0f);
  sampling.top_p = share("top_p", 1.0f);
  sampling.top_k = std::max(small(fields, "top_k", 0), -2);
  if (sampling.top_k == -1) sampling.top_k = 0;  // as other servers write "all"
  sampling.min_p = share("min_p", 0.0f);
  sampling.typical_p = share("typical_p", 1.0f);
  sampling.repetition_penalty = share("repetition_penalty", 1.0f);
  sampling.presence_penalty = share("presence_penalty", 0.0f);
  sampling.frequency_penalty = share("frequency_penalty", 0.0f);
  read_logit_bias(fields, sampling);
  if (const Json* seed = fields.find("seed")) {
    if (!seed->is_number_integer()) refuse_value("seed", *seed, "an integer");
    sampling.seed = seed->get<uint64_t>();  // negative numbers count modulo 2^64
  }
}

// Everything but the prompt and the number of tokens.
Request read_request(Fields& fields, const ServedModel& model) {
  Request request;
  read_sampling(fields, request.sampling);
  read_constraint(fields, request);
  request.min_new_tokens = fields.integer("min_tokens", 0);
  request.stop = fields.texts("stop");
  request.stop_tokens = fields.token_ids("stop_token_ids", model.capacity.vocab);
  request.ignores_eos = fields.flag("ignore_eos", false);
  request.priority = small(fields, "priority", 0);
  request.cache_salt = fields.text("cache_salt").value_or("");
  if (const std::optional<double> seconds = fields.number("timeout")) {
    if (!(*seconds > 0 && *seconds <= 1e6)) {
      throw ApiError(400, concat("timeout is ", *seconds, "; give seconds, up to 1000000"),
                     "timeout");
    }
    request.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(*seconds));
  }
  return request;
}

void read_logprobs(Fields& fields, Api api, GenerationRequest& made, Request& request) {
  if (api == Api::chat) {
    made.wants_logprobs = fields.flag("logprobs", false);
    const std::optional<int64_t> num_top = fields.integer("top_logprobs");
    if (num_top && !made.wants_logprobs) {
      throw ApiError(400, concat("top_logprobs is ", *num_top, ", but logprobs is not true"),
                     "top_logprobs");
    }
    if (made.wants_logprobs) request.num_logprobs = small(fields, "top_logprobs", 0);
    if (num_top && *num_top < 0) refuse_value("top_logprobs", *num_top, "0 to 20");
    return;
  }
  const std::optional<int64_t> num_top = fields.integer("logprobs");
  if (num_top && *num_top < 0) refuse_value("logprobs", *num_top, "0 to 20");
  made.wants_logprobs = num_top.has_value();
  if (num_top) request.num_logprobs = small(fields, "logprobs", 0);
}

void check_length(const std::vector<int32_t>& prompt, const ServedModel& model, Api api) {
  const auto num = std::ssize(prompt);
  if (num < model.capacity.max_context) return;
  const std::string field = api == Api::chat ? "messages" : "prompt";
  throw ApiError(400,
                 concat("the context of this model is ", model.capacity.max_context,
                        " tokens, and ", field, " has ", num, "; shorten it"),
                 field, "context_length_exceeded");
}

std::vector<std::vector<int32_t>> read_prompts(Fields& fields, const ServedModel& model) {
  const Json* given = fields.find("prompt");
  if (given == nullptr)
    throw ApiError(400, "prompt is missing; give a text or token ids", "prompt");
  const int64_t vocab = model.capacity.vocab;
  if (given->is_string()) return {encode_prompt(model, given->get<std::string>(), "prompt")};
  if (!given->is_array()) {
    refuse_value("prompt", *given, "a string, a list of strings, token ids, or a list of those");
  }
  if (given->empty()) throw ApiError(400, "prompt is empty; give a text or token ids", "prompt");
  if (given->front().is_number()) return {read_token_ids("prompt", *given, vocab)};
  if (std::ssize(*given) > kMaxPrompts) {
    throw ApiError(400,
                   concat("prompt has ", given->size(), " prompts; give at most ", kMaxPrompts),
                   "prompt");
  }
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& one = (*given)[i];
    const std::string field = concat("prompt[", i, "]");
    if (one.is_string()) {
      all.push_back(encode_prompt(model, one.get<std::string>(), field));
    } else {
      all.push_back(read_token_ids(field, one, vocab));
    }
    if (all.back().empty()) throw ApiError(400, concat(field, " is empty"), "prompt");
  }
  return all;
}

// `best_of` sequences are sampled, and the n with the best mean log-probability returned.
void read_counts(Fields& fields, GenerationRequest& made, Request& request) {
  made.num_choices = small(fields, "n", 1);
  request.num_outputs = small(fields, "best_of", made.num_choices);
  if (request.num_outputs < made.num_choices) {
    refuse_value("best_of", request.num_outputs, concat("at least n, ", made.num_choices));
  }
  if (made.num_choices < 1) refuse_value("n", made.num_choices, "1 to 64");
  if (request.num_outputs == made.num_choices) return;
  if (request.num_outputs > engine::kMaxOutputs) {
    refuse_value("best_of", request.num_outputs, concat("at most ", engine::kMaxOutputs));
  }
  if (made.is_streamed) throw ApiError(400, "best_of cannot be streamed", "best_of");
  request.num_logprobs = std::max(request.num_logprobs, 0);
}

void read_streaming(Fields& fields, GenerationRequest& made) {
  made.is_streamed = fields.flag("stream", false);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) refuse_value("stream_options", *options, "an object");
  if (!made.is_streamed) {
    throw ApiError(400, "stream_options is given, but stream is not true", "stream_options");
  }
  Fields inner(*options);
  made.wants_usage = inner.flag("include_usage", false);
}

// The text of a message, which may come in parts.
std::string read_content(const Json& content, const std::string& field) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return {};
  if (!content.is_array()) refuse_value(field, content, "a string or a list of text parts");
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) refuse_value(field, part, R"(parts {"type": "text", "text": ...} only)");
    text += part["text"].get<std::string>();
  }
  return text;
}

}  // namespace

std::vector<int32_t> encode_prompt(const ServedModel& model, const std::string& text,
                                   const std::string& field) {
  if (text.empty()) throw ApiError(400, concat(field, " is empty; give some text"), "prompt");
  try {
    return model.prompts->continuation(text, /*has_special=*/false);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "prompt");
  }
}

void check_model(Fields& fields, const ServedModel& model) {
  const std::optional<std::string> name = fields.text("model");
  if (!name || *name == model.name) return;
  throw ApiError(
      404,
      concat("there is no model ", in_quotes(*name), "; this server has ", in_quotes(model.name)),
      "model", "model_not_found");
}

std::vector<ChatMessage> read_messages(Fields& fields) {
  const Json* given = fields.find("messages");
  if (given == nullptr) throw ApiError(400, "messages is missing; give a list", "messages");
  if (!given->is_array()) refuse_value("messages", *given, "a list of messages");
  if (given->empty()) throw ApiError(400, "messages is empty; give at least one", "messages");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& one = (*given)[i];
    const std::string field = concat("messages[", i, "]");
    if (!one.is_object()) refuse_value(field, one, "an object with role and content");
    if (!one.contains("role") || !one["role"].is_string()) {
      refuse_value(field + ".role", one.value("role", Json()), "a string such as user");
    }
    ChatMessage message{.role = one["role"].get<std::string>(),
                        .content = read_content(one.value("content", Json()), field + ".content")};
    Json more = one;
    more.erase("role");
    more.erase("content");
    if (!more.empty()) message.fields_json = more.dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

GenerationRequest read_generation(Api api, std::string_view body, const ServedModel& model) {
  const Json parsed = parse_body(body);
  Fields fields(parsed);
  check_model(fields, model);
  GenerationRequest made{.api = api};
  if (api == Api::chat && !model.prompts->has_template()) {
    throw ApiError(400, "this model has no chat template; use /v1/completions to continue a text",
                   "messages");
  }
  Request request = read_request(fields, model);
  read_streaming(fields, made);
  read_logprobs(fields, api, made, request);
  read_counts(fields, made, request);

  std::vector<std::vector<int32_t>> prompts;
  if (api == Api::chat) {
    const std::vector<ChatMessage> messages = read_messages(fields);
    try {
      prompts.push_back(model.prompts->chat(messages));
    } catch (const Error& error) {
      throw ApiError(400, error.what(), "messages");
    }
  } else {
    prompts = read_prompts(fields, model);
    made.wants_echo = fields.flag("echo", false);
    if (const std::optional<std::string> suffix = fields.text("suffix");
        suffix && !suffix->empty()) {
      throw ApiError(400, "suffix is not supported by this server; leave it out", "suffix");
    }
  }
  std::optional<int64_t> max_tokens = fields.integer("max_tokens");
  if (const auto newer = fields.integer("max_completion_tokens")) max_tokens = newer;
  request.wants_prompt_logprobs = made.wants_echo && made.wants_logprobs;
  for (std::vector<int32_t>& prompt : prompts) {
    check_length(prompt, model, api);
    Request& one = made.prompts.emplace_back(request);
    const int64_t room = model.capacity.max_context - std::ssize(prompt);
    one.max_new_tokens = std::min(max_tokens.value_or(api == Api::chat ? room : 16), room);
    one.prompt = std::move(prompt);
    check_by_engine(one, model, api);
    made.echoes.push_back(made.wants_echo ? model.tokenizer->decode(one.prompt) : std::string());
  }
  fields.find("user");  // says who asks, which changes nothing here
  made.ignored = fields.unread();
  return made;
}

}  // namespace tessera::server
