// Chat templates: the Jinja that models ship in tokenizer_config.json, interpreted within bounds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer.h"

namespace tessera {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
  // More keys, as a JSON object: {"tool_calls": [...]}. Strings in it count as input; a key that is
  // there too, such as "content": null, replaces the one above.
  std::string fields_json = {};
};

struct TemplateLimits {
  int64_t steps = 1'000'000;       // evaluated nodes, loop rounds, elements made, each 64 bytes
                                   // of text handled: bounds both time and memory
  int64_t output_bytes = 4 << 20;  // of the rendered text, and of any one string
  int64_t depth = 64;              // of nesting: in the source, of calls, of values; 1 to 256
  int64_t source_bytes = 256 << 10;
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string bos_token = {};
  std::string eos_token = {};
  // More variables, as a JSON object: {"tools": [...], "date_string": "26 Jul 2024"}. Strings in it
  // count as input.
  std::string variables_json = {};
};

class ChatTemplate {
 public:
  // Refuses a source that does not parse, showing the line.
  static ChatTemplate parse(std::string_view source, const TemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The conversation as runs of text: the template's own words are control text, what came from
  // messages and variables is not (bos_token and eos_token are control). Refuses what goes beyond
  // the limits, an unknown name, filter or method, and the template's own raise_exception.
  std::vector<TextPart> render(std::span<const ChatMessage> messages,
                               const ChatOptions& options = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What tokenizer_config.json (and chat_template.jinja) of a folder say. No template: base models.
struct ChatSettings {
  std::optional<std::string> template_source;
  std::string bos_token;
  std::string eos_token;
};
ChatSettings parse_chat_settings(std::string_view json, std::string_view origin);
ChatSettings load_chat_settings(const std::filesystem::path& folder);

}  // namespace tessera
