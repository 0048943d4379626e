// Bodies of requests to what the engine takes.
// SPDX-License-Identifier: MIT
#include "server/generation_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "core/text.h"
#include "server/json_fields.h"
#include "server/messages.h"

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
  if (field == "prompt" && api == Api::embeddings) return "input";
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
  request.min_new_tokens = fields.integer("min_tokens", 0);
  request.stop = fields.texts("stop");
  request.stop_tokens = fields.token_ids("stop_token_ids", model.capacity.vocab);
  request.ignores_eos = fields.flag("ignore_eos", false);
  request.keeps_special = !fields.flag("skip_special_tokens", true);
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

// Room for one generated token, unless none is generated.
void check_length(const std::vector<int32_t>& prompt, const ServedModel& model, Api api) {
  const auto num = std::ssize(prompt);
  const int64_t room = model.capacity.max_context - (api == Api::embeddings ? 0 : 1);
  if (num <= room) return;
  const std::string field = client_name("prompt", api);
  throw ApiError(400,
                 concat("the context of this model is ", model.capacity.max_context,
                        " tokens, and ", field, " has ", num, "; shorten it"),
                 field, "context_length_exceeded");
}

// Plain text as a prompt; `place` is where in the field `name` it stands.
std::vector<int32_t> encode_prompt(const ServedModel& model, const std::string& text,
                                   const std::string& place, const char* name) {
  if (text.empty()) throw ApiError(400, concat(place, " is empty; give some text"), name);
  try {
    return model.prompts->continuation(text, /*has_special=*/false);
  } catch (const Error& error) {
    throw ApiError(400, error.what(), name);
  }
}

// A text, token ids, or a list of either, from the field `name`.
std::vector<std::vector<int32_t>> read_prompts(Fields& fields, const char* name,
                                               const ServedModel& model) {
  const Json* given = fields.find(name);
  if (given == nullptr) {
    throw ApiError(400, concat(name, " is missing; give a text or token ids"), name);
  }
  const int64_t vocab = model.capacity.vocab;
  if (given->is_string()) return {encode_prompt(model, given->get<std::string>(), name, name)};
  if (!given->is_array()) {
    refuse_value(name, *given, "a string, a list of strings, token ids, or a list of those");
  }
  if (given->empty()) {
    throw ApiError(400, concat(name, " is empty; give a text or token ids"), name);
  }
  if (given->front().is_number()) return {read_token_ids(name, *given, vocab)};
  if (std::ssize(*given) > kMaxPrompts) {
    throw ApiError(
        400, concat(name, " has ", given->size(), " prompts; give at most ", kMaxPrompts), name);
  }
  std::vector<std::vector<int32_t>> all;
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& one = (*given)[i];
    const std::string field = concat(name, "[", i, "]");
    if (one.is_string()) {
      all.push_back(encode_prompt(model, one.get<std::string>(), field, name));
    } else {
      all.push_back(read_token_ids(field, one, vocab));
    }
    if (all.back().empty()) throw ApiError(400, concat(field, " is empty"), name);
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

// The prompt of a chat, and what the request is to do for its tools.
std::vector<int32_t> read_chat(Fields& fields, const ServedModel& model, GenerationRequest& made,
                               Request& request) {
  if (!model.prompts->has_template()) {
    throw ApiError(400, "this model has no chat template; use /v1/completions to continue a text",
                   "messages");
  }
  made.tools = read_tools(fields, model.tool_format);
  Json variables = Json::object();
  if (const Json* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object()) refuse_value("chat_template_kwargs", *more, "an object");
    variables = *more;
  }
  if (made.tools) {
    variables["tools"] = Json::parse(made.tools->tools_json);
    if (made.tools->constraint) {
      if (made.constraint) {
        throw ApiError(400,
                       concat("tool_choice asks for a call beside ", made.constraint->field,
                              "; leave one of them out"),
                       "tool_choice");
      }
      made.constraint = FieldConstraint{"tools", *made.tools->constraint};
    } else {  // the marks around calls may be control tokens
      request.keeps_special = true;
    }
  }
  const std::vector<ChatMessage> messages = read_messages(fields);
  try {
    return model.prompts->chat(messages, variables.empty() ? std::string() : variables.dump());
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "messages");
  }
}

Pooling read_pooling(Fields& fields) {
  const std::string name = fields.text("pooling").value_or("mean");
  if (name == "mean") return Pooling::mean;
  if (name == "last") return Pooling::last;
  refuse_value("pooling", name, R"("mean" or "last")");
}

}  // namespace

void check_model(Fields& fields, const ServedModel& model) {
  const std::optional<std::string> name = fields.text("model");
  if (!name || *name == model.name) return;
  throw ApiError(
      404,
      concat("there is no model ", in_quotes(*name), "; this server has ", in_quotes(model.name)),
      "model", "model_not_found");
}

GenerationRequest read_generation(Api api, std::string_view body, const ServedModel& model) {
  if (api == Api::embeddings) return read_embedding(body, model);
  const Json parsed = parse_body(body);
  Fields fields(parsed);
  check_model(fields, model);
  GenerationRequest made{.api = api};
  Request request = read_request(fields, model);
  made.constraint = read_constraint(fields);
  read_streaming(fields, made);
  read_logprobs(fields, api, made, request);
  read_counts(fields, made, request);

  std::vector<std::vector<int32_t>> prompts;
  if (api == Api::chat) {
    prompts.push_back(read_chat(fields, model, made, request));
  } else {
    if (const Json* tools = fields.find("tools"); tools != nullptr && !tools->empty()) {
      throw ApiError(400, "tools are for /v1/chat/completions; leave them out", "tools");
    }
    prompts = read_prompts(fields, "prompt", model);
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
  fields.text("user");  // says who asks, which changes nothing here
  made.ignored = fields.unread();
  return made;
}

void use_constraint(GenerationRequest& made, std::shared_ptr<const Constraint> constraint) {
  for (Request& one : made.prompts) one.constraint = constraint;
}

GenerationRequest read_embedding(std::string_view body, const ServedModel& model) {
  const Json parsed = parse_body(body);
  Fields fields(parsed);
  check_model(fields, model);
  GenerationRequest made{.api = Api::embeddings};
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    refuse_value("encoding_format", format, R"("float" or "base64")");
  }
  made.is_base64 = format == "base64";
  made.is_normalized = fields.flag("normalize", true);
  if (const auto size = fields.integer("dimensions"); size && *size != model.hidden) {
    refuse_value("dimensions", *size, concat(model.hidden, ", which is the size of this model's"));
  }
  Request request;
  request.pooling = read_pooling(fields);
  request.max_new_tokens = 0;
  request.priority = small(fields, "priority", 0);
  request.cache_salt = fields.text("cache_salt").value_or("");
  for (std::vector<int32_t>& prompt : read_prompts(fields, "input", model)) {
    check_length(prompt, model, Api::embeddings);
    Request& one = made.prompts.emplace_back(request);
    one.prompt = std::move(prompt);
    check_by_engine(one, model, Api::embeddings);
  }
  fields.text("user");
  made.ignored = fields.unread();
  return made;
}

}  // namespace tessera::server
