// Renders templates for tests: from text, from files, with conversations from JSON.
// SPDX-License-Identifier: MIT
#pragma once

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.h"
#include "tessera/text/chat_template.h"

namespace tessera::testing {

using Json = nlohmann::ordered_json;

inline std::string read_file(const std::string& name) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR "/tests/text/chat/") + name, std::ios::binary);
  expects(file.good(), "a data file of the tests is missing");
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string joined(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

// All keys but role go into fields_json, and content too if it is not text.
inline std::vector<ChatMessage> messages_of(const Json& list) {
  std::vector<ChatMessage> messages;
  for (const Json& entry : list) {
    ChatMessage message;
    Json fields = Json::object();
    for (const auto& [key, value] : entry.items()) {
      if (key == "role") {
        message.role = value.get<std::string>();
      } else if (key == "content" && value.is_string()) {
        message.content = value.get<std::string>();
      } else {
        fields[key] = value;
      }
    }
    if (!fields.empty()) message.fields_json = fields.dump();
    messages.push_back(std::move(message));
  }
  return messages;
}

inline std::vector<ChatMessage> two_messages() {
  return {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Hello"}};
}

inline std::vector<TextPart> render_parts(std::string_view source,
                                          const std::string& variables = {},
                                          const TemplateLimits& limits = {}) {
  return ChatTemplate::parse(source, limits)
      .render(two_messages(),
              {.bos_token = "<s>", .eos_token = "</s>", .variables_json = variables});
}

inline std::string render(std::string_view source, const std::string& variables = {},
                          const TemplateLimits& limits = {}) {
  return joined(render_parts(source, variables, limits));
}

}  // namespace tessera::testing
