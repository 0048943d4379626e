// Chat on a terminal.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/text/prompt.h"

namespace tessera::apps {

enum class ChatCommand { none, help, quit, reset, unknown };
// Spaces around the command are allowed; none if it does not begin with a slash.
ChatCommand parse_chat_command(std::string_view line);

// The conversation so far, system message first.
class Conversation {
 public:
  explicit Conversation(std::string system);
  void reset();
  void ask(std::string text);
  void answer(std::string text);
  // Removes the last question, which got no answer.
  void take_back();
  const std::vector<ChatMessage>& messages() const { return messages_; }

 private:
  std::string system_;
  std::vector<ChatMessage> messages_;
};

struct ChatRun {
  Request request = {};  // all but the prompt
  std::string system = {};
  bool uses_template = true;  // false: each line is continued as plain text
  bool has_special = false;
};

// Reads lines until /quit or the end of input. Ctrl-C stops an answer and keeps its beginning.
void run_chat(Engine& engine, const PromptMaker& prompts, const ChatRun& settings);

}  // namespace tessera::apps
