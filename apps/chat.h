// Talking to a model on a terminal.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/text/prompt.h"

namespace tessera::apps {

enum class ChatCommand { none, help, quit, reset, unknown };
// "/reset", with spaces around it; none for what does not begin with a slash.
ChatCommand parse_chat_command(std::string_view line);

// What was said so far, as the template wants it: the system's words first.
class Conversation {
 public:
  explicit Conversation(std::string system);
  void reset();
  void ask(std::string text);
  void answer(std::string text);
  // Takes back the last question, which got no answer.
  void take_back();
  const std::vector<ChatMessage>& messages() const { return messages_; }

 private:
  std::string system_;
  std::vector<ChatMessage> messages_;
};

struct ChatRun {
  Request request = {};  // all but the prompt
  std::string system = {};
  bool uses_template = true;  // false: each line is continued as it stands
  bool has_special = false;
};

// Reads lines until /quit or the end of input. Ctrl-C stops an answer and keeps what came of it.
void run_chat(Engine& engine, const PromptMaker& prompts, const ChatRun& settings);

}  // namespace tessera::apps
