// From schemas to rules, keyword by keyword.
// SPDX-License-Identifier: MIT
#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/text.h"
#include "grammar/json_parts.h"
#include "grammar/regex.h"
#include "grammar/schema_document.h"
#include "grammar/schema_values.h"
#include "tessera/core/error.h"

namespace tessera::grammar {
namespace {

constexpr std::array<std::string_view, 7> kTypes{"object", "array",   "string", "integer",
                                                 "number", "boolean", "null"};
// The keywords that are understood, and the type that each is about; "" for all.
struct Keyword {
  std::string_view name;
  std::string_view type;
};
constexpr std::array<Keyword, 22> kKeywords{{
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"allOf", ""},
    {"$ref", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
}};

class SchemaCompiler {
 public:
  SchemaCompiler(Rules& rules, std::string_view text, int32_t max_whitespace)
      : rules_(rules), document_(text, rules.budget()), parts_(rules, max_whitespace) {}

  RuleId run() {
    const RuleId root = rules_.add_rule("schema");
    rules_.define(root, compile(document_.root(), "#"));
    return root;
  }

 private:
  // A call of the rule for a schema. Equal schemas share it, so recursion comes to an end.
  ExprId compile(const Json& schema, const std::string& path) {
    rules_.budget().check_time();
    if (schema.is_boolean()) return schema.get<bool>() ? parts_.value() : rules_.any_of({});
    if (!schema.is_object()) {
      refuse_schema(path,
                    concat("a schema is an object, true or false; found ", shown(schema.dump())));
    }
    const auto [place, is_new] = made_.try_emplace(schema.dump(), -1);
    if (is_new) {
      place->second = rules_.add_rule(path);
      const RuleId rule = place->second;
      // Rules within rules, while they are being compiled: deeper than any schema nests.
      rules_.budget().check_nesting(++depth_);
      rules_.define(rule, body(schema, path));
      --depth_;
    }
    return rules_.call(place->second);
  }

  ExprId body(const Json& schema, const std::string& path) {
    check_keywords(schema, path);
    if (schema.contains("$ref") || schema.contains("allOf")) {
      if (schema.contains("$ref") && !has_more_than(schema, "$ref")) {
        document_.flat(schema, path);  // refuses references without an end
        return compile(document_.resolve(schema["$ref"], path),
                       schema["$ref"].get_ref<const std::string&>());
      }
      return compile(document_.flat(schema, path), path);
    }
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (schema.contains(keyword)) return any_of(schema, keyword, path);
    }
    if (schema.contains("enum") || schema.contains("const")) return literals(schema, path);
    std::vector<ExprId> alternatives;
    for (const std::string& type : types_of(schema, path)) {
      alternatives.push_back(of_type(schema, type, path));
    }
    return rules_.any_of(std::move(alternatives));
  }

  static bool has_more_than(const Json& schema, std::string_view keyword) {
    return std::ranges::any_of(schema.items(), [&](const auto& item) {
      return item.key() != keyword && !SchemaDocument::is_annotation(item.key());
    });
  }

  static void check_keywords(const Json& schema, const std::string& path) {
    for (const auto& [keyword, value] : schema.items()) {
      const std::string_view name = keyword;
      const bool is_known =
          std::ranges::any_of(kKeywords, [&](const Keyword& known) { return known.name == name; });
      if (is_known || SchemaDocument::is_annotation(name)) continue;
      refuse_schema(path, concat("keyword ", in_quotes(name), " is not supported"));
    }
  }

  ExprId any_of(const Json& schema, const char* keyword, const std::string& path) {
    const Json& branches = schema[keyword];
    if (!branches.is_array() || branches.empty()) {
      refuse_schema(path, concat(keyword, " is not a list of schemas"));
    }
    Json base = schema;
    base.erase(keyword);
    const bool has_base = has_more_than(schema, keyword);
    std::vector<ExprId> alternatives;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = concat(path, "/", keyword, "/", i);
      alternatives.push_back(has_base ? compile(document_.merged(base, branches[i], place), place)
                                      : compile(branches[i], place));
    }
    return rules_.any_of(std::move(alternatives));
  }

  // The types a schema speaks of: those of "type", or those that its keywords are about, or all.
  std::vector<std::string> types_of(const Json& schema, const std::string& path) const {
    std::vector<std::string> types;
    if (schema.contains("type")) {
      const Json& type = schema["type"];
      const Json list = type.is_array() ? type : Json::array({type});
      for (const Json& one : list) {
        const bool is_known =
            one.is_string() && std::ranges::find(kTypes, one.get<std::string>()) != kTypes.end();
        if (!is_known) refuse_schema(path, concat("type is ", shown(one.dump())));
        types.push_back(one.get<std::string>());
      }
      return types;
    }
    for (const Keyword& keyword : kKeywords) {
      const std::string type(keyword.type);
      if (type.empty() || !schema.contains(std::string(keyword.name))) continue;
      if (std::ranges::find(types, type) == types.end()) types.push_back(type);
    }
    if (types.empty()) types.emplace_back("");
    return types;
  }

  ExprId of_type(const Json& schema, const std::string& type, const std::string& path) {
    if (type == "object") return object(schema, path);
    if (type == "array") return array(schema, path);
    if (type == "string") return schema_string(parts_, schema, path);
    if (type == "integer") return schema_integer(parts_, schema, path);
    if (type == "number") return schema_number(parts_, schema, path);
    if (type == "boolean") return parts_.boolean();
    if (type == "null") return parts_.null();
    return parts_.value();
  }

  ExprId literals(const Json& schema, const std::string& path) {
    for (const auto& [keyword, value] : schema.items()) {
      if (keyword == "enum" || keyword == "const" || keyword == "type") continue;
      if (SchemaDocument::is_annotation(keyword)) continue;
      refuse_schema(path, concat("keyword ", in_quotes(keyword), " beside enum or const"));
    }
    Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
    if (!values.is_array() || values.empty()) refuse_schema(path, "enum is not a list of values");
    if (schema.contains("enum") && schema.contains("const")) {
      refuse_schema(path, "enum and const; give one of them");
    }
    std::vector<ExprId> alternatives;
    for (const Json& value : values) {
      if (schema.contains("type") && !has_type(value, types_of(schema, path))) continue;
      alternatives.push_back(rules_.text(value.dump()));
    }
    if (alternatives.empty()) refuse_schema(path, "no value of enum or const has the type");
    return rules_.any_of(std::move(alternatives));
  }

  static bool has_type(const Json& value, const std::vector<std::string>& types) {
    const auto is = [&](std::string_view type) {
      return std::ranges::find(types, type) != types.end();
    };
    if (value.is_object()) return is("object");
    if (value.is_array()) return is("array");
    if (value.is_string()) return is("string");
    if (value.is_boolean()) return is("boolean");
    if (value.is_null()) return is("null");
    if (value.is_number_integer()) return is("integer") || is("number");
    return is("number");
  }

  struct Member {
    std::string name;
    ExprId value;
    bool is_required;
  };

  // The members in the order of the schema; required ones that it does not describe come last.
  std::vector<Member> members_of(const Json& schema, const Json& extra, const std::string& path) {
    const Json none = Json::object(), nothing = Json::array();
    const Json& properties = schema.contains("properties") ? schema["properties"] : none;
    const Json& required = schema.contains("required") ? schema["required"] : nothing;
    if (!properties.is_object()) refuse_schema(path, "properties is not an object");
    if (!required.is_array()) refuse_schema(path, "required is not a list");
    std::vector<Member> members;
    for (const auto& [name, value] : properties.items()) {
      const bool is_required = std::ranges::find(required, Json(name)) != required.end();
      const std::string place = concat(path, "/properties/", name);
      if (value == false) {
        if (is_required) refuse_schema(place, "is required and can have no value");
        continue;
      }
      members.push_back({name, compile(value, place), is_required});
    }
    for (const Json& name : required) {
      if (!name.is_string()) refuse_schema(path, "required holds something that is not a string");
      const auto& text = name.get_ref<const std::string&>();
      if (properties.contains(text)) continue;
      if (extra == false && schema.contains("additionalProperties")) {
        refuse_schema(path, concat(in_quotes(text), " is required and not allowed"));
      }
      const bool is_described = extra != false;
      members.push_back({text, is_described ? compile(extra, path) : parts_.value(), true});
    }
    return members;
  }

  // Vertices 2i + 2 and 2i + 3: before member i, without and with a member before it.
  ExprId object(const Json& schema, const std::string& path) {
    if (!schema.contains("properties") && !schema.contains("required") &&
        !schema.contains("additionalProperties")) {
      return parts_.any_object();
    }
    // Without the keyword only what is described is generated.
    const Json extra = schema.contains("additionalProperties") ? schema["additionalProperties"]
                       : schema.contains("properties")         ? Json(false)
                                                               : Json(true);
    const std::vector<Member> members = members_of(schema, extra, path);
    const auto vertex = [](size_t i, bool has_member) {
      return static_cast<int32_t>(2 * i + 2 + (has_member ? 1 : 0));
    };
    const ExprId comma = parts_.comma(), nothing = rules_.text("");
    std::vector<Expr::Arc> arcs{{kGraphStart, vertex(0, false), parts_.open("{")}};
    for (size_t i = 0; i < members.size(); ++i) {
      const Member& member = members[i];
      const ExprId pair =
          rules_.sequence({rules_.text(Json(member.name).dump()), parts_.colon(), member.value});
      arcs.push_back({vertex(i, false), vertex(i + 1, true), pair});
      arcs.push_back({vertex(i, true), vertex(i + 1, true), rules_.sequence({comma, pair})});
      if (member.is_required) continue;
      arcs.push_back({vertex(i, false), vertex(i + 1, false), nothing});
      arcs.push_back({vertex(i, true), vertex(i + 1, true), nothing});
    }
    const int32_t bare = vertex(members.size(), false), rest = vertex(members.size(), true);
    if (extra != false) add_extra(extra, members, bare, rest, arcs, path);
    arcs.push_back({bare, kGraphEnd, parts_.close("}")});
    arcs.push_back({rest, kGraphEnd, parts_.close("}")});
    return rules_.graph(std::move(arcs));
  }

  void add_extra(const Json& extra, const std::vector<Member>& members, int32_t bare, int32_t rest,
                 std::vector<Expr::Arc>& arcs, const std::string& path) {
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.name);
    const ExprId key = names.empty() ? parts_.string() : parts_.key_except(names);
    const ExprId pair =
        rules_.sequence({key, parts_.colon(), compile(extra, path + "/additionalProperties")});
    arcs.push_back({bare, rest, pair});
    arcs.push_back({rest, rest, rules_.sequence({parts_.comma(), pair})});
  }

  ExprId array(const Json& schema, const std::string& path) {
    const int64_t least = schema_count(rules_.budget(), schema, "minItems", path).value_or(0);
    const std::optional<int64_t> most = schema_count(rules_.budget(), schema, "maxItems", path);
    if (most && *most < least) {
      refuse_schema(path, concat("minItems is ", least, ", maxItems ", *most));
    }
    if (schema.contains("items") && schema["items"].is_array()) {
      refuse_schema(path, "items is a list; call it prefixItems");
    }
    if (!schema.contains("prefixItems")) {
      const Json items = schema.contains("items") ? schema["items"] : Json(true);
      if (items == false) {
        if (least > 0) refuse_schema(path, "minItems above 0 with items false");
        return parts_.array(parts_.value(), 0, 0);
      }
      return parts_.array(compile(items, path + "/items"), least, most);
    }
    return tuple(schema, least, most, path);
  }

  // Vertex 2 + i: i items so far.
  ExprId tuple(const Json& schema, int64_t least, std::optional<int64_t> most,
               const std::string& path) {
    const Json& prefix = schema["prefixItems"];
    if (!prefix.is_array()) refuse_schema(path, "prefixItems is not a list of schemas");
    const Json rest = schema.contains("items") ? schema["items"] : Json(false);
    const int64_t num_prefix = std::ssize(prefix);
    if (least > num_prefix && rest == false) {
      refuse_schema(
          path, concat("minItems is ", least, " with ", num_prefix, " prefixItems and no items"));
    }
    const int64_t most_prefix = std::min(num_prefix, most.value_or(num_prefix));
    std::vector<Expr::Arc> arcs{{kGraphStart, 2, parts_.open("[")}};
    const ExprId comma = parts_.comma(), end = parts_.close("]");
    for (int64_t i = 0; i < most_prefix; ++i) {
      ExprId item = compile(prefix[static_cast<size_t>(i)], concat(path, "/prefixItems/", i));
      if (i > 0) item = rules_.sequence({comma, item});
      const auto from = static_cast<int32_t>(2 + i);
      if (i >= least) arcs.push_back({from, kGraphEnd, end});
      arcs.push_back({from, from + 1, item});
    }
    ExprId more = rules_.text("");
    if (rest != false && (!most || *most > most_prefix)) {
      const ExprId item = compile(rest, path + "/items");
      const int64_t least_more = std::max<int64_t>(0, least - most_prefix);
      const int64_t most_more = most ? *most - most_prefix : kNoEnd;
      const ExprId next = rules_.sequence({comma, item});
      if (most_prefix > 0) {
        more = rules_.repeat(next, least_more, most_more);
      } else {  // the first item has no comma
        const ExprId others = rules_.repeat(next, std::max<int64_t>(0, least_more - 1),
                                            most ? most_more - 1 : kNoEnd);
        more = rules_.sequence({item, others});
        if (least_more == 0) more = rules_.optional(more);
      }
    }
    const auto last = static_cast<int32_t>(2 + most_prefix);
    arcs.push_back({last, kGraphEnd, rules_.sequence({more, end})});
    return rules_.graph(std::move(arcs));
  }

  Rules& rules_;
  SchemaDocument document_;
  JsonParts parts_;
  std::map<std::string, RuleId> made_;  // by the text of the schema
  int64_t depth_ = 0;
};

}  // namespace

RuleId compile_schema(Rules& rules, std::string_view text, int32_t max_whitespace) {
  return SchemaCompiler(rules, text, max_whitespace).run();
}

RuleId compile_json_object(Rules& rules, int32_t max_whitespace) {
  JsonParts parts(rules, max_whitespace);
  const RuleId root = rules.add_rule("json_object");
  rules.define(root, parts.any_object());
  return root;
}

}  // namespace tessera::grammar
