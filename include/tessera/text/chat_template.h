// Chat templates: the Jinja templates in a model's tokenizer_config.json, interpreted within
// limits.
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
  // More keys, as a JSON object: {"tool_calls": [...]}. Strings in it count as input. They replace
  // the fields above if they have the same name, as in "content": null.
  std::string fields_json = {};
};

struct TemplateLimits {
  int64_t steps = 1'000'000;       // evaluated nodes, loop rounds, elements made, and 64 bytes
                                   // of text handled each count 1: bounds time and memory
  int64_t output_bytes = 4 << 20;  // of the rendered text, and of every string
  int64_t depth = 64;              // nesting of the source, of calls and of values; 1 to 256
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
  // Refuses a source with syntax errors, naming the line.
  static ChatTemplate parse(std::string_view source, const TemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // The conversation as pieces of text. Text of the template itself, bos_token and eos_token are
  // control text; text from messages and variables is not. Refuses what exceeds the limits, unknown
  // names, filters and methods, and what the template refuses by raise_exception.
  std::vector<TextPart> render(std::span<const ChatMessage> messages,
                               const ChatOptions& options = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The settings in tokenizer_config.json and chat_template.jinja. Base models have no template.
struct ChatSettings {
  std::optional<std::string> template_source;
  std::string bos_token;
  std::string eos_token;
};
ChatSettings parse_chat_settings(std::string_view json, std::string_view origin);
ChatSettings load_chat_settings(const std::filesystem::path& folder);

}  // namespace tessera
