// Routes, access, and errors as responses.
// SPDX-License-Identifier: MIT
#include "server/service.h"

#include <algorithm>
#include <array>
#include <new>
#include <random>

#include "core/text.h"
#include "server/json_fields.h"
#include "server/log.h"

namespace tessera::server {
namespace {

constexpr size_t kMaxReaderTasks = 64;
constexpr int kNumReaders =
    2;  // so that a schema that takes a second does not hold up large bodies

std::string random_stem() {
  std::random_device device;
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(device()));
  return text.data();
}

bool matches(std::string_view pattern, std::string_view path) {
  const size_t place = pattern.find("{id}");
  if (place == std::string_view::npos) return pattern == path;
  return path.size() > place && path.starts_with(pattern.substr(0, place));
}

}  // namespace

std::span<const Service::Route> Service::routes() {
  static constexpr std::array kRoutes = {
      Route{"GET", "/", true, &Service::get_page},
      Route{"GET", "/health", true, &Service::get_health},
      Route{"GET", "/metrics", false, &Service::get_metrics},
      Route{"GET", "/version", false, &Service::get_version},
      Route{"GET", "/openapi.json", false, &Service::get_openapi},
      Route{"GET", "/v1/models", false, &Service::get_models},
      Route{"GET", "/v1/models/{id}", false, &Service::get_model},
      Route{"POST", "/v1/completions", false, &Service::post_completions},
      Route{"POST", "/v1/chat/completions", false, &Service::post_chat},
      Route{"POST", "/v1/embeddings", false, &Service::post_embeddings},
      Route{"POST", "/tokenize", false, &Service::post_tokenize},
      Route{"POST", "/detokenize", false, &Service::post_detokenize},
  };
  return kRoutes;
}

Service::Service(ServiceOptions options, ServiceLinks links)
    : options_(std::move(options)),
      links_(std::move(links)),
      id_stem_(random_stem()),
      reader_(kMaxReaderTasks, kNumReaders) {}

void Service::set_ready(ServedModel model) {
  model_ = std::move(model);
  if (state_ == State::loading) state_ = State::ready;
}

void Service::set_dead(const std::string& why) {
  state_ = State::dead;
  if (options_.log) options_.log(log_line("error", {{"message", why}}));
}

void Service::set_progress(int64_t done_bytes, int64_t total_bytes) {
  done_bytes_ = done_bytes;
  total_bytes_ = total_bytes;
}

std::string Service::allowed_methods(std::string_view path) {
  std::string allowed;
  for (const Route& route : routes()) {
    if (!matches(route.path, path)) continue;
    allowed +=
        concat(allowed.empty() ? "" : ", ", route.method, route.method == "GET" ? ", HEAD" : "");
  }
  return allowed;
}

const Service::Route* Service::find_route(const HttpRequest& request) const {
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  for (const Route& route : routes()) {
    if (matches(route.path, request.path) && route.method == method) return &route;
  }
  const std::string allowed = allowed_methods(request.path);
  if (allowed.empty()) {
    throw ApiError(404, concat("there is no ", in_quotes(request.path),
                               "; /openapi.json lists what there is"));
  }
  throw ApiError(405, concat(shown(request.method), " is not for ", in_quotes(request.path),
                             "; use ", allowed));
}

// A page of another site may make a browser send requests here. It gets no answer unless its origin
// is listed, with or without a key.
void Service::check_access(const HttpRequest& request, const Route& route) const {
  if (!request.origin.empty() && request.method == "POST" &&
      !is_own_origin(request.origin, request.host) &&
      std::ranges::find(options_.cors_origins, request.origin) == options_.cors_origins.end()) {
    throw ApiError(403, concat("requests of pages from ", in_quotes(request.origin),
                               " are not taken; --cors-origin lists those that are"));
  }
  if (route.is_public || options_.keys.empty()) return;
  if (find_key(options_.keys, request.authorization)) return;
  throw ApiError(401,
                 request.authorization.empty()
                     ? "an API key is needed: send the header Authorization: Bearer KEY"
                     : "the API key is not one of this server's",
                 {}, "invalid_api_key");
}

void Service::add_cors(const HttpRequest& request, HttpResponse& response) const {
  if (options_.cors_origins.empty()) return;
  response.headers.emplace_back("Vary", "Origin");
  const bool is_listed =
      std::ranges::find(options_.cors_origins, request.origin) != options_.cors_origins.end();
  if (!is_listed) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", request.origin);
  if (request.method != "OPTIONS") return;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
}

void Service::respond(const std::shared_ptr<Exchange>& exchange, HttpResponse response) {
  if (!exchange->is_open()) return;
  metrics_.add_response(response.status);
  add_cors(exchange->request(), response);
  response.closes |= state_ == State::draining || state_ == State::dead;
  exchange->respond(std::move(response));
}

void Service::refuse(const std::shared_ptr<Exchange>& exchange, const std::exception& error) {
  const auto* api = dynamic_cast<const ApiError*>(&error);
  const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const int status = api != nullptr ? api->status() : is_memory ? 503 : 500;
  log_refusal(exchange->request(), status, error.what());
  if (api != nullptr) {
    HttpResponse response = error_response(*api);
    if (status == 405) {
      response.headers.emplace_back("Allow", allowed_methods(exchange->request().path));
    }
    return respond(exchange, std::move(response));
  }
  respond(exchange, error_response(status, is_memory ? "out of memory; try again" : error.what()));
}

void Service::handle(const std::shared_ptr<Exchange>& exchange) {
  try {
    dispatch(exchange);
  } catch (const std::exception& error) {
    refuse(exchange, error);
  }
}

void Service::dispatch(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method == "OPTIONS" && !request.origin.empty()) {
    return respond(exchange, {.status = 204});
  }
  const Route* route = find_route(request);
  check_access(request, *route);
  (this->*route->handle)(exchange);
}

void Service::log_refusal(const HttpRequest& request, int status, std::string_view why) const {
  if (!options_.log) return;
  options_.log(log_line("refused", {{"method", shown(request.method)},
                                    {"path", shown(request.path)},
                                    {"status", status},
                                    {"client", request.peer},
                                    {"why", shown(why, 400)}}));
}

}  // namespace tessera::server
