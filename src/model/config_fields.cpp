// Fields: checks of types and ranges, and their messages.
// SPDX-License-Identifier: MIT
#include "model/config_fields.h"

#include <cmath>
#include <utility>

#include "core/text.h"
#include "model/bounded_json.h"
#include "tessera/core/error.h"

namespace tessera::model {

using nlohmann::json;

Fields::Fields(const json& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {
  if (!object.is_object()) {
    fail(concat(prefix_, "is ", shown_value(object), "; it must be an object of keys and values"));
  }
}

const json* Fields::find(std::string_view key) const {
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

void Fields::refuse(std::string_view key, const json& value, std::string_view what) const {
  fail(concat(prefix_, key, " is ", shown_value(value), "; it must be ", what));
}

void Fields::refuse(std::string_view key, std::string_view what) const {
  const json* value = find(key);
  if (value == nullptr) fail(concat(prefix_, key, " is missing; it must be ", what));
  refuse(key, *value, what);
}

void Fields::refuse_missing(std::string_view key) const {
  fail(concat(prefix_, key, " is missing"));
}

std::optional<int64_t> Fields::whole_or_none(std::string_view key, int64_t low,
                                             int64_t high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto right = [&] { return concat("a whole number from ", low, " to ", high); };
  if (!value->is_number_integer()) refuse(key, *value, right());
  // Unsigned values beyond 2^63 would turn negative.
  const bool is_beyond =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(high);
  if (is_beyond || value->get<int64_t>() < low || value->get<int64_t>() > high) {
    refuse(key, *value, right());
  }
  return value->get<int64_t>();
}

int64_t Fields::whole(std::string_view key, int64_t low, int64_t high) const {
  const std::optional<int64_t> value = whole_or_none(key, low, high);
  if (!value) refuse_missing(key);
  return *value;
}

std::optional<double> Fields::number_or_none(std::string_view key, double low, double high) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto right = [&] { return concat("a number from ", low, " to ", high); };
  if (!value->is_number()) refuse(key, *value, right());
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) refuse(key, *value, right());
  return number;
}

double Fields::number(std::string_view key, double low, double high) const {
  const std::optional<double> value = number_or_none(key, low, high);
  if (!value) refuse_missing(key);
  return *value;
}

bool Fields::flag(std::string_view key, bool otherwise) const {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::text_or_none(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(std::string_view key) const {
  std::vector<std::string> result;
  const json* value = find(key);
  if (value == nullptr) return result;
  if (!value->is_array()) refuse(key, *value, "a list of strings");
  for (const json& item : *value) {
    if (!item.is_string()) refuse(key, *value, "a list of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

std::vector<int32_t> Fields::ids(std::string_view key, int64_t limit) const {
  std::vector<int32_t> result;
  const json* value = find(key);
  if (value == nullptr) return result;
  const auto add = [&](const json& item) {
    const bool is_id =
        item.is_number_unsigned() && item.get<uint64_t>() < static_cast<uint64_t>(limit);
    if (!is_id) refuse(key, *value, concat("a token id from 0 to ", limit - 1, ", or a list"));
    result.push_back(static_cast<int32_t>(item.get<uint64_t>()));
  };
  if (value->is_array()) {
    for (const json& item : *value) add(item);
  } else {
    add(*value);
  }
  return result;
}

std::optional<Fields> Fields::object_or_none(std::string_view key) const {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(key, *value, "an object");
  return Fields(*value, concat(prefix_, key, "."));
}

}  // namespace tessera::model
