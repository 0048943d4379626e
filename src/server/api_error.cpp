// OpenAI's error object.
// SPDX-License-Identifier: MIT
#include "server/api_error.h"

#include <nlohmann/json.hpp>

namespace tessera::server {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 503: return "service_unavailable";
    default: return "invalid_request_error";
  }
}

nlohmann::ordered_json or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return std::string(text);
}

}  // namespace

std::string error_json(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  const nlohmann::ordered_json error = {{"message", std::string(message)},
                                        {"type", std::string(type_of(status))},
                                        {"param", or_null(param)},
                                        {"code", or_null(code)}};
  return nlohmann::ordered_json{{"error", error}}.dump(
      -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpResponse error_response(int status, std::string_view message, std::string_view param,
                            std::string_view code) {
  HttpResponse response{.status = status, .body = error_json(status, message, param, code)};
  if (status == 429 || status == 503) response.headers.emplace_back("Retry-After", "1");
  if (status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(const ApiError& error) {
  return error_response(error.status(), error.what(), error.param(), error.code());
}

}  // namespace tessera::server
