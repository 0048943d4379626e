// Bodies of requests: JSON within limits, and the fields of an object with their types checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace tessera::server {

using Json = nlohmann::ordered_json;

inline constexpr int kMaxBodyDepth = 64;

// The object in a body. Refuses, with status 400, what is not a JSON object, nests deeper than
// kMaxBodyDepth, or has strings that are not UTF-8. If a key is repeated, the last one counts. A
// number without a fraction is an integer, also if it is written 3.0.
Json parse_body(std::string_view text);

// A value for a message, escaped and cut.
std::string shown_value(const Json& value);

// "temperature is "hot"; give a number", with the field as the error's param.
[[noreturn]] void refuse_value(const std::string& field, const Json& value,
                               std::string_view wanted);

// Reads an object field by field. A field that is null counts as absent; one of a wrong type is
// refused. Remembers what was asked for, so that it knows what nobody reads.
class Fields {
 public:
  explicit Fields(const Json& object) : object_(object) {}

  const Json* find(const char* name);  // null: absent
  bool flag(const char* name, bool otherwise);
  double number(const char* name, double otherwise);
  std::optional<double> number(const char* name);
  std::optional<int64_t> integer(const char* name);
  int64_t integer(const char* name, int64_t otherwise) { return integer(name).value_or(otherwise); }
  std::optional<std::string> text(const char* name);
  // A string, or a list of strings.
  std::vector<std::string> texts(const char* name);
  // Ids of 0 up to vocab - 1.
  std::vector<int32_t> token_ids(const char* name, int64_t vocab);

  std::vector<std::string> unread() const;

 private:
  const Json& object_;
  std::set<std::string, std::less<>> read_;
};

// A list of token ids. Refuses the first that is not an integer from 0 to vocab - 1, by its index.
std::vector<int32_t> read_token_ids(const std::string& field, const Json& list, int64_t vocab);

}  // namespace tessera::server
