// Messages of clients to messages of templates.
// SPDX-License-Identifier: MIT
#include "server/messages.h"

#include <string>
#include <utility>

#include "core/text.h"

namespace tessera::server {
namespace {

// The text of a message, which may come in parts.
std::string read_content(const Json& content, const std::string& field) {
  if (content.is_string()) return content.get<std::string>();
  if (content.is_null()) return {};
  if (!content.is_array()) refuse_value(field, content, "a string or a list of text parts");
  std::string text;
  for (const Json& part : content) {
    const bool is_text = part.is_object() && part.value("type", Json()) == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) refuse_value(field, part, R"(parts {"type": "text", "text": ...} only)");
    text += part["text"].get<std::string>();
  }
  return text;
}

void open_arguments(Json& calls, const std::string& field) {
  if (calls.is_null()) return;
  if (!calls.is_array()) refuse_value(field, calls, "a list of tool calls");
  for (Json& call : calls) {
    const bool has_function = call.is_object() && call.contains("function") &&
                              call["function"].is_object() &&
                              call["function"].value("name", Json()).is_string();
    if (!has_function) refuse_value(field, call, "calls with a function and its name");
    const Json kind = call.value("type", Json("function")), id = call.value("id", Json(""));
    if (kind != "function" || !id.is_string()) {
      refuse_value(field, call, "calls of type function with a text as id");
    }
    Json& function = call["function"];
    if (!function.contains("arguments") || function["arguments"].is_object()) continue;
    if (!function["arguments"].is_string()) {
      refuse_value(field, function["arguments"], "arguments as the text of a JSON object");
    }
    try {
      function["arguments"] = parse_body(function["arguments"].get<std::string>());
    } catch (const ApiError&) {
      // A model may have written what is no object; the template gets it as text.
    }
  }
}

}  // namespace

std::vector<ChatMessage> read_messages(Fields& fields) {
  const Json* given = fields.find("messages");
  if (given == nullptr) throw ApiError(400, "messages is missing; give a list", "messages");
  if (!given->is_array()) refuse_value("messages", *given, "a list of messages");
  if (given->empty()) throw ApiError(400, "messages is empty; give at least one", "messages");
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < given->size(); ++i) {
    const Json& one = (*given)[i];
    const std::string field = concat("messages[", i, "]");
    if (!one.is_object()) refuse_value(field, one, "an object with role and content");
    if (!one.contains("role") || !one["role"].is_string()) {
      refuse_value(field + ".role", one.value("role", Json()), "a string such as user");
    }
    ChatMessage message{.role = one["role"].get<std::string>(),
                        .content = read_content(one.value("content", Json()), field + ".content")};
    // Clients send null for what a message does not have; templates ask whether it is there.
    Json more = Json::object();
    for (const auto& [key, value] : one.items()) {
      if (key == "role" || key == "content" || value.is_null()) continue;
      const bool is_text = key == "tool_call_id" || key == "name";
      if (is_text && !value.is_string()) refuse_value(concat(field, ".", key), value, "a string");
      more[key] = value;
    }
    if (more.contains("tool_calls")) open_arguments(more["tool_calls"], field + ".tool_calls");
    if (!more.empty()) message.fields_json = more.dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace tessera::server
