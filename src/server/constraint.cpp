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
  if (!value.is_object() && !value.is_boolean()) refuse_value(field, value, "give a JSON schema");
  return value.dump();
}

std::string text_of(const std::string& field, const Json& value) {
  if (!value.is_string()) refuse_value(field, value, "give a string");
  return value.get<std::string>();
}

ConstraintSpec choice_of(const std::string& field, const Json& value) {
  ConstraintSpec spec{.kind = ConstraintKind::choice};
  if (!value.is_array()) refuse_value(field, value, "give a list of strings");
  for (const Json& choice : value) spec.choices.push_back(text_of(field, choice));
  return spec;
}

std::optional<ConstraintSpec> read_response_format(const Json& format) {
  const std::string field = "response_format";
  if (!format.is_object() || !format.contains("type") || !format["type"].is_string()) {
    refuse_value(field, format, "give an object with a type");
  }
  const auto type = format["type"].get<std::string>();
  if (type == "text") return std::nullopt;
  if (type == "json_object") return ConstraintSpec{.kind = ConstraintKind::json_object};
  if (type != "json_schema") {
    refuse_value(field, format, "its type must be text, json_object or json_schema");
  }
  const Json* outer = format.contains("json_schema") ? &format["json_schema"] : nullptr;
  if (outer == nullptr || !outer->is_object() || !outer->contains("schema")) {
    refuse_value(field, format, "give json_schema with a schema");
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

// Refuses what does not compile, with the field it came in. The engine compiles it again unless it
// keeps an equal one.
void check(const std::string& field, const ConstraintSpec& spec) {
  try {
    Constraint::compile(spec);
  } catch (const Error& error) {
    throw ApiError(400, concat(field, ": ", error.what()), field);
  }
}

constexpr std::array kForms = {"json", "regex", "choice", "grammar"};

// The constraints that a body asks for, each with the field it stands in.
std::vector<std::pair<std::string, ConstraintSpec>> read_specs(Fields& fields) {
  std::vector<std::pair<std::string, ConstraintSpec>> specs;
  if (const Json* format = fields.find("response_format")) {
    if (std::optional<ConstraintSpec> spec = read_response_format(*format)) {
      specs.emplace_back("response_format", std::move(*spec));
    }
  }
  for (const char* form : kForms) {
    const std::string field = concat("guided_", form);
    if (const Json* value = fields.find(field.c_str())) {
      specs.emplace_back(field, read_form(field, form, *value));
    }
  }
  if (const Json* outputs = fields.find("structured_outputs")) {
    const std::string field = "structured_outputs";
    if (!outputs->is_object()) refuse_value(field, *outputs, "give an object");
    for (const auto& [form, value] : outputs->items()) {
      if (std::ranges::find(kForms, form) == kForms.end()) refuse(concat(field, ".", form));
      specs.emplace_back(field, read_form(field, form, value));
    }
  }
  return specs;
}

}  // namespace

void read_constraint(Fields& fields, Request& request) {
  std::vector<std::pair<std::string, ConstraintSpec>> specs = read_specs(fields);
  if (specs.size() > 1) {
    throw ApiError(400,
                   concat(specs[1].first, " is given beside ", specs[0].first,
                          "; a text has one constraint: leave one of them out"),
                   specs[1].first);
  }
  if (!specs.empty()) {
    check(specs[0].first, specs[0].second);
    request.constraint_spec = std::move(specs[0].second);
  }
  const Json* choice = fields.find("tool_choice");
  const bool has_no_tools = choice != nullptr && *choice == "none";
  for (const char* field : {"tools", "functions"}) {
    const Json* tools = fields.find(field);
    if (tools != nullptr && !tools->empty() && !has_no_tools) refuse(field);
  }
}

}  // namespace tessera::server
