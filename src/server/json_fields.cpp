// JSON of requests, read with care.
// SPDX-License-Identifier: MIT
#include "server/json_fields.h"

#include <cmath>
#include <limits>

#include "core/text.h"

namespace tessera::server {

namespace {

// JSON has one kind of number: 3.0 is the integer 3.
void take_as_integer(Json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const auto number = value.get<double>();
  if (std::fabs(number) <= kExact && number == std::floor(number)) {
    value = static_cast<int64_t>(number);
    if (value >= 0) value = value.get<uint64_t>();  // as the parser has it
  }
}

}  // namespace

Json parse_body(std::string_view text) {
  const auto watch = [](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::value && value.is_number_float()) take_as_integer(value);
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kMaxBodyDepth) {
      throw ApiError(400, concat("the body nests deeper than ", kMaxBodyDepth, " levels"));
    }
    return true;
  };
  Json parsed;
  try {
    parsed = Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    throw ApiError(400, concat("the body is not JSON: something is wrong at byte ", error.byte));
  } catch (const Json::exception&) {
    throw ApiError(400, "the body holds a number that is too large");
  }
  if (!parsed.is_object()) {
    throw ApiError(400, concat("the body is ", shown_value(parsed), "; give a JSON object"));
  }
  return parsed;
}

std::string shown_value(const Json& value) {
  if (value.is_object()) return value.empty() ? "{}" : "an object";
  if (value.is_array() && value.size() > 16) return "a long list";
  return shown(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void refuse_value(const std::string& field, const Json& value, std::string_view wanted) {
  throw ApiError(400, concat(field, " is ", shown_value(value), "; give ", wanted), field);
}

const Json* Fields::find(const char* name) {
  read_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool Fields::flag(const char* name, bool otherwise) {
  const Json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse_value(name, *value, "true or false");
  return value->get<bool>();
}

std::optional<double> Fields::number(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse_value(name, *value, "a number");
  return value->get<double>();
}

double Fields::number(const char* name, double otherwise) {
  return number(name).value_or(otherwise);
}

std::optional<int64_t> Fields::integer(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) refuse_value(name, *value, "an integer");
  const bool is_huge = value->is_number_unsigned() &&
                       value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  return is_huge ? std::numeric_limits<int64_t>::max() : value->get<int64_t>();
}

std::optional<std::string> Fields::text(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_value(name, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) refuse_value(name, *value, "a string or a list of strings");
  std::vector<std::string> all;
  for (size_t i = 0; i < value->size(); ++i) {
    const Json& one = (*value)[i];
    if (!one.is_string()) refuse_value(concat(name, "[", i, "]"), one, "a string");
    all.push_back(one.get<std::string>());
  }
  return all;
}

std::vector<int32_t> Fields::token_ids(const char* name, int64_t vocab) {
  const Json* value = find(name);
  return value == nullptr ? std::vector<int32_t>() : read_token_ids(name, *value, vocab);
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!read_.contains(name)) names.push_back(shown(name));
  }
  return names;
}

std::vector<int32_t> read_token_ids(const std::string& field, const Json& list, int64_t vocab) {
  const std::string wanted = concat("an integer from 0 to ", vocab - 1);
  if (!list.is_array()) refuse_value(field, list, "a list of token ids");
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& one = list[i];
    const bool is_id = one.is_number_unsigned() && one.get<uint64_t>() < uint64_t(vocab);
    if (!is_id) refuse_value(concat(field, "[", i, "]"), one, wanted);
    ids.push_back(one.get<int32_t>());
  }
  return ids;
}

}  // namespace tessera::server
