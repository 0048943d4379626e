// What is typed, as tokens: plain text to continue, or a conversation by the model's template.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/chat_template.h"
#include "tessera/engine/engine.h"

namespace tessera::apps {

class PromptMaker {
 public:
  // Keeps the engine's tokenizer by reference. Refuses a model that has none.
  PromptMaker(const Engine& engine, const std::filesystem::path& folder);
  PromptMaker(const Tokenizer& tokenizer, ChatSettings settings);

  bool has_template() const { return template_.has_value(); }
  // What the tokenizer puts before a text, and the text. Control tokens in it count where asked.
  std::vector<int32_t> continuation(std::string_view text, bool has_special) const;
  // Refuses where there is no template.
  std::vector<int32_t> chat(std::span<const ChatMessage> messages) const;

 private:
  const Tokenizer& tokenizer_;
  ChatSettings settings_;
  std::optional<ChatTemplate> template_;
};

// Bounds max_new_tokens by what is left of the context. Refuses a prompt that fills it.
void fit_to_context(Request& request, int64_t max_context);

// MODEL and PROMPT of `tessera run`. One argument alone that has spaces in it and is no folder is
// the prompt for the default model; any other is a model.
struct RunArguments {
  std::string model;
  std::optional<std::string> prompt;
};
RunArguments read_run_arguments(const std::vector<std::string>& positionals);

}  // namespace tessera::apps
