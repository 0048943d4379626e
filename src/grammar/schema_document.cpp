// Parsing, references and merging of JSON schemas.
// SPDX-License-Identifier: MIT
#include "grammar/schema_document.h"

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

constexpr size_t kMostKeys = 2000;  // of one object

// Follows a parse: depth, and the keys of every object that is still open.
Json parse_within(std::string_view text, const Budget& budget) {
  std::vector<std::set<std::string>> open;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      budget.check_nesting(depth + 1);
    }
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open.back().insert(key).second) {
        fail(concat("schema: the key ", in_quotes(key), " appears twice in one object"));
      }
      if (open.back().size() > kMostKeys) {
        fail(concat("schema: an object has more than ", kMostKeys, " keys"));
      }
    }
    return true;
  };
  check_no_nul(text, "schema");
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    const size_t end = std::min(error.byte, text.size());
    const size_t begin = end > 40 ? end - 40 : 0;
    fail(concat("schema: is not JSON at byte ", error.byte, ", near ",
                in_quotes(text.substr(begin, end - begin + 8))));
  } catch (const Json::exception&) {
    fail("schema: holds a number that is too large");
  }
}

void add_missing(Json& list, const Json& more) {
  for (const Json& value : more) {
    if (std::ranges::find(list, value) == list.end()) list.push_back(value);
  }
}

Json as_list(const Json& type) { return type.is_array() ? type : Json::array({type}); }

// What two "type" keywords both allow; "number" includes "integer".
Json common_types(const Json& a, const Json& b) {
  const Json first = as_list(a), second = as_list(b);
  Json common = Json::array();
  const auto has = [](const Json& list, const char* type) {
    return std::ranges::find(list, Json(type)) != list.end();
  };
  for (const Json& type : first) {
    if (std::ranges::find(second, type) != second.end()) common.push_back(type);
  }
  const bool is_integer = (has(first, "integer") && has(second, "number")) ||
                          (has(second, "integer") && has(first, "number"));
  if (is_integer && !has(common, "integer") && !has(common, "number")) common.push_back("integer");
  return common;
}

}  // namespace

void refuse_schema(const std::string& path, std::string_view why) {
  fail(concat("schema: at ", shown(path), ": ", why));
}

bool SchemaDocument::is_annotation(std::string_view keyword) {
  static constexpr std::array<std::string_view, 13> kAnnotations{
      "title",   "description", "default",  "examples",  "$schema", "$id",        "$comment",
      "$anchor", "deprecated",  "readOnly", "writeOnly", "$defs",   "definitions"};
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

SchemaDocument::SchemaDocument(std::string_view text, Budget& budget) : budget_(budget) {
  budget.check_source(text);
  root_ = parse_within(text, budget);
}

const Json& SchemaDocument::resolve(const Json& reference, const std::string& path) const {
  if (!reference.is_string()) refuse_schema(path, "$ref is not a string");
  const auto& text = reference.get_ref<const std::string&>();
  if (text != "#" && !text.starts_with("#/")) {
    refuse_schema(path, concat("$ref ", in_quotes(text),
                               " is not supported; give a place in this schema: #/$defs/name"));
  }
  try {
    return root_.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    refuse_schema(path, concat("$ref ", in_quotes(text), " is not in the schema"));
  }
}

Json SchemaDocument::flat(const Json& schema, const std::string& path) const {
  return flat(schema, path, 0);
}

Json SchemaDocument::flat(const Json& schema, const std::string& path, int64_t depth) const {
  budget_.check_time();
  if (depth > budget_.limits().nesting) {
    refuse_schema(path, "$ref and allOf refer to themselves without an end");
  }
  if (!schema.is_object()) return schema;
  Json whole = schema;
  whole.erase("$ref");
  whole.erase("allOf");
  if (schema.contains("$ref")) {
    const Json target = flat(resolve(schema["$ref"], path), path, depth + 1);
    if (target.is_boolean()) {
      if (!target.get<bool>()) return target;
    } else {
      merge_into(whole, target, path);
    }
  }
  if (schema.contains("allOf")) {
    if (!schema["allOf"].is_array()) refuse_schema(path, "allOf is not a list");
    for (const Json& part : schema["allOf"]) {
      const Json target = flat(part, path, depth + 1);
      if (target.is_boolean()) {
        if (!target.get<bool>()) return target;
      } else {
        merge_into(whole, target, path);
      }
    }
  }
  return whole;
}

Json SchemaDocument::merged(const Json& a, const Json& b, const std::string& path) const {
  Json whole = flat(a, path);
  const Json part = flat(b, path);
  if (whole.is_boolean()) return whole.get<bool>() ? part : whole;
  if (part.is_boolean()) return part.get<bool>() ? whole : part;
  merge_into(whole, part, path);
  return whole;
}

// "additionalProperties" speaks of the properties beside it, so it cannot be moved away from them.
void SchemaDocument::check_extras(const Json& whole, const Json& part,
                                  const std::string& path) const {
  const auto names_of = [](const Json& schema) {
    std::set<std::string> names;
    if (!schema.contains("properties") || !schema["properties"].is_object()) return names;
    for (const auto& [name, unused] : schema["properties"].items()) names.insert(name);
    return names;
  };
  const auto restricts = [](const Json& schema) {
    return schema.contains("additionalProperties") && schema["additionalProperties"] != true;
  };
  const auto first = names_of(whole), second = names_of(part);
  const bool first_knows = std::ranges::includes(first, second);
  const bool second_knows = std::ranges::includes(second, first);
  if ((restricts(whole) && !first_knows) || (restricts(part) && !second_knows)) {
    refuse_schema(path,
                  "additionalProperties in one of several schemas that must all hold (allOf, $ref "
                  "or anyOf beside other keywords) names fewer properties than the others");
  }
}

void SchemaDocument::merge_into(Json& whole, const Json& part, const std::string& path) const {
  if (!part.is_object()) refuse_schema(path, "a schema is not an object");
  check_extras(whole, part, path);
  for (const auto& [keyword, value] : part.items()) {
    budget_.check_time();
    if (!whole.contains(keyword)) {
      whole[keyword] = value;
    } else if (!is_annotation(keyword) && whole[keyword] != value) {
      merge_keyword(whole, keyword, value, path);
    }
  }
}

void SchemaDocument::merge_keyword(Json& whole, const std::string& keyword, const Json& value,
                                   const std::string& path) const {
  Json& mine = whole[keyword];
  if (keyword == "type") {
    mine = common_types(mine, value);
    if (mine.empty()) refuse_schema(path, "schemas that must all hold have no type in common");
  } else if (keyword == "required" && mine.is_array() && value.is_array()) {
    add_missing(mine, value);
  } else if (keyword == "properties" && mine.is_object() && value.is_object()) {
    for (const auto& [name, schema] : value.items()) {
      if (!mine.contains(name)) {
        mine[name] = schema;
      } else if (mine[name] != schema) {
        mine[name] = Json{{"allOf", Json::array({mine[name], schema})}};
      }
    }
  } else if ((keyword == "minimum" || keyword == "exclusiveMinimum" || keyword == "minLength" ||
              keyword == "minItems") &&
             mine.is_number() && value.is_number()) {
    if (value > mine) mine = value;
  } else if ((keyword == "maximum" || keyword == "exclusiveMaximum" || keyword == "maxLength" ||
              keyword == "maxItems") &&
             mine.is_number() && value.is_number()) {
    if (value < mine) mine = value;
  } else if (keyword == "items" && mine.is_object() && value.is_object()) {
    mine = Json{{"allOf", Json::array({mine, value})}};
  } else {
    refuse_schema(path, concat("keyword ", in_quotes(keyword),
                               " has different values in schemas that must all hold"));
  }
}

}  // namespace tessera::grammar
