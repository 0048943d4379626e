// Errors as clients of the API see them.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"
#include "tessera/core/error.h"

namespace tessera::server {

// A request that is refused: an HTTP status and the fields of OpenAI's error object.
class ApiError : public Error {
 public:
  ApiError(int status, std::string_view message, std::string_view param = {},
           std::string_view code = {})
      : Error(message), status_(status), param_(param), code_(code) {}

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_;  // the field that is wrong; empty: none
  std::string code_;   // "model_not_found"; empty: none
};

// {"error": {"message", "type", "param", "code"}}. The type follows from the status.
std::string error_json(int status, std::string_view message, std::string_view param = {},
                       std::string_view code = {});
// With Retry-After for 429 and 503.
HttpResponse error_response(int status, std::string_view message, std::string_view param = {},
                            std::string_view code = {});
HttpResponse error_response(const ApiError& error);

}  // namespace tessera::server
