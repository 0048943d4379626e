// Routes that tell about the server and its model, and the tokenizer's.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstdio>
#include <random>

#include "core/build_info.h"
#include "core/text.h"
#include "server/assets.h"
#include "server/json_fields.h"
#include "server/messages.h"
#include "server/service.h"

namespace tessera::server {

namespace {

// A number that no page can guess, for the scripts and styles that may run.
std::string draw_nonce() {
  std::random_device device;
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%08x%08x%08x%08x", static_cast<unsigned>(device()),
                static_cast<unsigned>(device()), static_cast<unsigned>(device()),
                static_cast<unsigned>(device()));
  return text.data();
}

}  // namespace

// The page makes no request to any other host, and runs no script but its own.
void Service::get_page(const std::shared_ptr<Exchange>& exchange) {
  constexpr std::string_view kPlace = "@NONCE@";
  const std::string nonce = draw_nonce();
  std::string page(page_html());
  for (size_t at = page.find(kPlace); at != std::string::npos; at = page.find(kPlace, at)) {
    page.replace(at, kPlace.size(), nonce);
  }
  respond(exchange, {.type = "text/html; charset=utf-8",
                     .body = std::move(page),
                     .headers = {{"Content-Security-Policy",
                                  concat("default-src 'none'; script-src 'nonce-", nonce,
                                         "'; style-src 'nonce-", nonce,
                                         "'; connect-src 'self'; img-src data:; base-uri 'none'; "
                                         "form-action 'none'; frame-ancestors 'none'")},
                                 {"X-Content-Type-Options", "nosniff"},
                                 {"Referrer-Policy", "no-referrer"},
                                 {"Cache-Control", "no-cache"}}});
}

void Service::get_health(const std::shared_ptr<Exchange>& exchange) {
  Json body;
  switch (state_) {
    case State::ready: body["status"] = "ok"; break;
    case State::loading: body["status"] = "loading"; break;
    case State::draining: body["status"] = "draining"; break;
    case State::dead: body["status"] = "failed"; break;
  }
  if (state_ == State::loading) {
    const int64_t total = total_bytes_;
    const double share =
        total == 0 ? 0.0 : static_cast<double>(done_bytes_) / static_cast<double>(total);
    body["progress"] = std::clamp(share, 0.0, 1.0);
  }
  HttpResponse response{.status = state_ == State::ready ? 200 : 503, .body = body.dump()};
  if (response.status == 503) response.headers.emplace_back("Retry-After", "1");
  respond(exchange, std::move(response));
}

void Service::get_metrics(const std::shared_ptr<Exchange>& exchange) {
  const ServerMetrics::Now now{.engine = links_.engine_metrics(),
                               .num_admitted = std::ssize(jobs_),
                               .num_connections = links_.num_connections()};
  respond(exchange, {.type = "text/plain; version=0.0.4; charset=utf-8",
                     .body = metrics_.print(model_ ? model_->name : std::string(), now)});
}

void Service::get_version(const std::shared_ptr<Exchange>& exchange) {
  const Json body = {{"version", kVersion}, {"commit", kCommit}};
  respond(exchange, {.body = body.dump()});
}

// What depends on the model is known once it is loaded.
void Service::get_openapi(const std::shared_ptr<Exchange>& exchange) {
  if (!model_) return respond(exchange, {.body = std::string(openapi_json())});
  Json document = Json::parse(openapi_json());
  Json& schemas = document["components"]["schemas"];
  schemas["ModelName"]["enum"] = {model_->name};
  const int64_t num_ids = model_->tokenizer->num_ids();
  schemas["TokenId"]["maximum"] = std::min(model_->capacity.vocab, num_ids) - 1;
  schemas["EmbeddingRequest"]["properties"]["dimensions"]["enum"] = {model_->hidden, nullptr};
  respond(exchange, {.body = document.dump(-1, ' ', false, Json::error_handler_t::replace)});
}

std::string Service::model_json() const {
  const Json model = {{"id", model_->name},
                      {"object", "model"},
                      {"created", model_->created},
                      {"owned_by", "tessera"},
                      {"max_model_len", model_->capacity.max_context},
                      {"vocab_size", model_->capacity.vocab},
                      {"has_chat_template", model_->prompts->has_template()},
                      {"description", model_->description}};
  return model.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Service::get_models(const std::shared_ptr<Exchange>& exchange) {
  check_ready();
  respond(exchange, {.body = R"({"object":"list","data":[)" + model_json() + "]}"});
}

void Service::get_model(const std::shared_ptr<Exchange>& exchange) {
  check_ready();
  const std::string_view path = exchange->request().path;
  const std::string_view name = path.substr(std::string_view("/v1/models/").size());
  if (name != model_->name) {
    throw ApiError(404,
                   concat("there is no model ", in_quotes(name), "; this server has ",
                          in_quotes(model_->name)),
                   "model", "model_not_found");
  }
  respond(exchange, {.body = model_json()});
}

void Service::post_tokenize(const std::shared_ptr<Exchange>& exchange) {
  check_ready();
  const Json parsed = parse_body(exchange->request().body);
  Fields fields(parsed);
  check_model(fields, *model_);
  std::vector<int32_t> tokens;
  const std::optional<std::string> text = fields.text("prompt");
  const bool adds_special = fields.flag("add_special_tokens", true);
  if (fields.find("messages") != nullptr) {
    const std::vector<ChatMessage> messages = read_messages(fields);
    try {
      tokens = model_->prompts->chat(messages);
    } catch (const Error& error) {
      throw ApiError(400, error.what(), "messages");
    }
  } else {
    if (!text) throw ApiError(400, "prompt is missing; give a text, or messages", "prompt");
    if (adds_special) tokens = model_->tokenizer->prefix();
    const std::vector<int32_t> rest = model_->tokenizer->encode(*text);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
  }
  const Json body = {{"count", tokens.size()},
                     {"max_model_len", model_->capacity.max_context},
                     {"tokens", tokens}};
  respond(exchange, {.body = body.dump()});
}

void Service::post_detokenize(const std::shared_ptr<Exchange>& exchange) {
  check_ready();
  const Json parsed = parse_body(exchange->request().body);
  Fields fields(parsed);
  check_model(fields, *model_);
  if (fields.find("tokens") == nullptr) {
    throw ApiError(400, "tokens is missing; give a list of token ids", "tokens");
  }
  const std::vector<int32_t> tokens = fields.token_ids("tokens", model_->tokenizer->num_ids());
  const Json body = {{"prompt", model_->tokenizer->decode(tokens, /*keep_special=*/true)}};
  respond(exchange, {.body = body.dump(-1, ' ', false, Json::error_handler_t::replace)});
}

}  // namespace tessera::server
