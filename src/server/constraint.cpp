// Constraints of an answer's text.
// SPDX-License-Identifier: MIT
#include "server/constraint.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::server {
namespace {

[[noreturn]] void refuse(const std::string& field) {
  throw ApiError(400, concat(field, " is not supported by this server; leave it out"), field);
}

// A schema as an object, or as a text that holds one.
std::string schema_text(const std::string& field, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() && !value.is_boolean()) refuse_value(field, value, "a JSON schema");
  return value.dump();
}

std::string text_of(const std::string& field, const Json& value) {
  if (!value.is_string()) refuse_value(field, value, "a string");
  return value.get<std::string>();
}

ConstraintSpec choice_of(const std::string& field, const Json& value) {
  ConstraintSpec spec{.kind = ConstraintKind::choice};
  if (!value.is_array()) refuse_value(field, value, "a list of strings");
  for (const Json& choice : value) spec.choices.push_back(text_of(field, choice));
  return spec;
}

std::optional<ConstraintSpec> read_response_format(const Json& format) {
  const std::string field = "response_format";
  if (!format.is_object() || !format.contains("type") || !format["type"].is_string()) {
    refuse_value(field, format, "an object with a type");
  }
  const auto type = format["type"].get<std::string>();
  if (type == "text") return std::nullopt;
  if (type == "json_object") return ConstraintSpec{.kind = ConstraintKind::json_object};
  if (type != "json_schema") {
    refuse_value(field, format, "one of type text, json_object or json_schema");
  }
  const Json* outer = format.contains("json_schema") ? &format["json_schema"] : nullptr;
  if (outer == nullptr || !outer->is_object() || !outer->contains("schema")) {
    refuse_value(field, format, "json_schema with a schema");
  }
  return ConstraintSpec{.kind = ConstraintKind::json_schema,
                        .text = schema_text(field, (*outer)["schema"])};
}

// One of the forms that vLLM's fields have: guided_json, or structured_outputs.json.
ConstraintSpec read_form(const std::string& field, std::string_view form, const Json& value) {
  if (form == "choice") return choice_of(field, value);
  if (form == "json") {
    return {.kind = ConstraintKind::json_schema, .text = schema_text(field, value)};
  }
  if (form == "regex") return {.kind = ConstraintKind::regex, .text = text_of(field, value)};
  return {.kind = ConstraintKind::grammar, .text = text_of(field, value)};
}

constexpr std::array kForms = {"json", "regex", "choice", "grammar"};

// The constraints that a body asks for, each with the field it stands in.
std::vector<FieldConstraint> read_specs(Fields& fields) {
  std::vector<FieldConstraint> specs;
  if (const Json* format = fields.find("response_format")) {
    if (std::optional<ConstraintSpec> spec = read_response_format(*format)) {
      specs.push_back({"response_format", std::move(*spec)});
    }
  }
  for (const char* form : kForms) {
    const std::string field = concat("guided_", form);
    if (const Json* value = fields.find(field.c_str())) {
      specs.push_back({field, read_form(field, form, *value)});
    }
  }
  if (const Json* outputs = fields.find("structured_outputs")) {
    const std::string field = "structured_outputs";
    if (!outputs->is_object()) refuse_value(field, *outputs, "an object");
    for (const auto& [form, value] : outputs->items()) {
      if (std::ranges::find(kForms, form) == kForms.end()) refuse(concat(field, ".", form));
      specs.push_back({field, read_form(field, form, value)});
    }
  }
  return specs;
}

}  // namespace

std::optional<FieldConstraint> read_constraint(Fields& fields) {
  std::vector<FieldConstraint> found = read_specs(fields);
  if (found.size() > 1) {
    throw ApiError(400,
                   concat(found[1].field, " is given beside ", found[0].field,
                          "; a text has one constraint: leave one of them out"),
                   found[1].field);
  }
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

std::shared_ptr<const Constraint> ConstraintCache::find(const ConstraintSpec& spec) {
  const std::scoped_lock lock(mutex_);
  const auto found = std::ranges::find(kept_, spec, &Kept::first);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->second;
}

std::shared_ptr<const Constraint> ConstraintCache::compile(const FieldConstraint& given) {
  if (auto known = find(given.spec)) return known;
  std::shared_ptr<const Constraint> made;
  try {
    made = Constraint::compile(given.spec);
  } catch (const Error& error) {
    throw ApiError(400, concat(given.field, ": ", error.what()), given.field);
  }
  const std::scoped_lock lock(mutex_);
  kept_.emplace_front(given.spec, made);
  if (kept_.size() > kMostKept) kept_.pop_back();
  return made;
}

}  // namespace tessera::server
