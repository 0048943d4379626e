// Tools to constraints, and generated text to calls.
// SPDX-License-Identifier: MIT
#include "server/tools.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/text.h"

namespace tessera::server {
namespace {

constexpr size_t kMaxTools = 128;
constexpr size_t kMaxNameBytes = 64;

std::string json_string(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

// The function of a tool: its name and the schema of its arguments.
const Json& function_of(const Json& tool, const std::string& field) {
  const bool is_function = tool.is_object() && tool.value("type", Json("function")) == "function" &&
                           tool.contains("function") && tool["function"].is_object();
  if (!is_function) refuse_value(field, tool, R"({"type": "function", "function": {"name": ...}})");
  const Json& function = tool["function"];
  const Json name = function.value("name", Json());
  if (!name.is_string() || !is_name(name.get<std::string>())) {
    refuse_value(field + ".function.name", name, "up to 64 letters, digits, '_', '-' and '.'");
  }
  const Json parameters = function.value("parameters", Json());
  if (!parameters.is_null() && !parameters.is_object()) {
    refuse_value(field + ".function.parameters", parameters, "a JSON schema");
  }
  return function;
}

Json parameters_of(const Json& function) {
  const Json given = function.value("parameters", Json());
  // Without a schema any object will do.
  return given.is_object() && !given.empty() ? given : Json{{"type", "object"}};
}

// References count from the root of a schema, and there are several schemas in one here.
void check_references(const Json& schema, const std::string& field) {
  if (schema.is_object()) {
    for (const auto& [key, value] : schema.items()) {
      if (key == "$ref" && value.is_string()) {
        const auto target = value.get<std::string>();
        if (target.starts_with("#/$defs/") || target.starts_with("#/definitions/")) continue;
        refuse_value(field, value, "references to $defs only, with tool_choice required");
      }
      check_references(value, field);
    }
  } else if (schema.is_array()) {
    for (const Json& one : schema) check_references(one, field);
  }
}

// A list of calls: [{"name": ..., "parameters": {...}}, ...].
std::string calls_schema(const Json& tools, bool may_repeat) {
  Json root = {{"type", "array"}, {"minItems", 1}};
  if (!may_repeat) root["maxItems"] = 1;
  Json calls = Json::array();
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i]["function"];
    Json parameters = parameters_of(function);
    const std::string field = concat("tools[", i, "].function.parameters");
    check_references(parameters, field);
    for (const char* group : {"$defs", "definitions"}) {
      if (!parameters.contains(group) || !parameters[group].is_object()) continue;
      for (const auto& [name, schema] : parameters[group].items()) {
        if (root.contains(group) && root[group].contains(name) && root[group][name] != schema) {
          refuse_value(field, name, "definitions of one name that are equal in all tools");
        }
        root[group][name] = schema;
      }
      parameters.erase(group);
    }
    calls.push_back(
        {{"type", "object"},
         {"properties",
          {{"name", {{"const", function["name"]}}}, {"parameters", std::move(parameters)}}},
         {"required", {"name", "parameters"}},
         {"additionalProperties", false}});
  }
  root["items"] = calls.size() == 1 ? calls.front() : Json{{"anyOf", calls}};
  return root.dump();
}

// The function that tool_choice names; empty: none.
std::string named_choice(const Json& choice, const Json& tools) {
  if (choice.is_string()) return {};
  const bool is_function = choice.is_object() && choice.contains("function") &&
                           choice["function"].is_object() &&
                           choice["function"].value("name", Json()).is_string();
  if (!is_function) {
    refuse_value(
        "tool_choice", choice,
        R"("none", "auto", "required" or {"type": "function", "function": {"name": ...}})");
  }
  const auto name = choice["function"]["name"].get<std::string>();
  const auto found = std::ranges::find_if(
      tools, [&](const Json& tool) { return tool["function"]["name"] == name; });
  if (found == tools.end()) refuse_value("tool_choice", choice, "a function of tools");
  return name;
}

}  // namespace

std::optional<ToolUse> read_tools(Fields& fields, std::optional<text::ToolFormat> format) {
  for (const char* old : {"functions", "function_call"}) {
    if (fields.find(old) != nullptr) {
      throw ApiError(400, concat(old, " is not supported by this server; use tools"), old);
    }
  }
  const bool may_repeat = fields.flag("parallel_tool_calls", true);
  const Json* tools = fields.find("tools");
  const Json* given = fields.find("tool_choice");
  const Json choice = given == nullptr ? Json("auto") : *given;
  const bool has_tools = tools != nullptr && !(tools->is_array() && tools->empty());
  if (choice == "none") return std::nullopt;
  if (!has_tools) {
    if (given == nullptr || choice == "auto") return std::nullopt;
    throw ApiError(400, "tool_choice is given without tools", "tool_choice");
  }
  if (!tools->is_array()) refuse_value("tools", *tools, "a list of tools");
  if (tools->size() > kMaxTools) {
    throw ApiError(400, concat("tools has ", tools->size(), " tools; give at most ", kMaxTools),
                   "tools");
  }
  for (size_t i = 0; i < tools->size(); ++i) function_of((*tools)[i], concat("tools[", i, "]"));
  if (!format) {
    throw ApiError(400, "the chat template of this model has no tool calls; leave out tools",
                   "tools");
  }
  ToolUse use{.format = *format, .tools_json = tools->dump()};
  use.name = named_choice(choice, *tools);
  if (!use.name.empty()) {
    use.mode = ToolUse::Mode::named;
    const auto found = std::ranges::find_if(
        *tools, [&](const Json& tool) { return tool["function"]["name"] == use.name; });
    use.constraint = ConstraintSpec{.kind = ConstraintKind::json_schema,
                                    .text = parameters_of((*found)["function"]).dump()};
  } else if (choice == "required") {
    use.mode = ToolUse::Mode::required;
    use.constraint = ConstraintSpec{.kind = ConstraintKind::json_schema,
                                    .text = calls_schema(*tools, may_repeat)};
  } else if (choice != "auto") {
    refuse_value("tool_choice", choice, R"("none", "auto", "required" or a function)");
  }
  return use;
}

CallReader::CallReader(const ToolUse& use, std::string seed)
    : name_(use.name), seed_(std::move(seed)) {
  if (use.mode == ToolUse::Mode::free) parser_.emplace(use.format);
  if (use.mode == ToolUse::Mode::required) {  // a list of calls, as Mistral's models write it
    parser_.emplace(text::ToolFormat::mistral);
    text::ToolOutput nothing;
    parser_->push("[TOOL_CALLS]", nothing);
  }
}

// Nine letters and digits: templates of Mistral's models take no other length.
std::string CallReader::id_of(size_t call) const {
  constexpr std::string_view kDigits =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : concat(seed_, "/", call)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  hash ^= hash >> 29;
  std::string id;
  for (int i = 0; i < 9; ++i, hash /= kDigits.size()) id += kDigits[hash % kDigits.size()];
  return id;
}

CallReader::News CallReader::take(std::string_view text, bool is_end) {
  text::ToolOutput out;
  if (parser_) {
    parser_->push(text, out);
    if (is_end) parser_->finish(out);
  } else if (!text.empty()) {
    out.deltas.push_back({0, calls_.empty() ? name_ : std::string(), std::string(text)});
  }
  News news{.content = std::move(out.content)};
  for (size_t i = 0; i < out.deltas.size(); ++i) {
    text::ToolDelta& delta = out.deltas[i];
    for (; i + 1 < out.deltas.size() && out.deltas[i + 1].index == delta.index; ++i) {
      delta.arguments += out.deltas[i + 1].arguments;
    }
    const auto index = static_cast<size_t>(delta.index);
    std::string head = concat(news.calls.empty() ? "" : ",", "{\"index\":", index, ",");
    std::string name;
    if (index >= calls_.size()) {
      calls_.push_back({id_of(index), delta.name, {}});
      head += concat("\"id\":", json_string(calls_[index].id), ",\"type\":\"function\",");
      name = concat("\"name\":", json_string(delta.name), ",");
    }
    calls_[index].arguments += delta.arguments;
    news.calls +=
        concat(head, "\"function\":{", name, "\"arguments\":", json_string(delta.arguments), "}}");
  }
  return news;
}

std::string CallReader::whole() const {
  std::string list;
  for (const Call& call : calls_) {
    list += concat(list.empty() ? "" : ",", "{\"id\":", json_string(call.id),
                   ",\"type\":\"function\",\"function\":{\"name\":", json_string(call.name),
                   ",\"arguments\":", json_string(call.arguments), "}}");
  }
  return list;
}

}  // namespace tessera::server
