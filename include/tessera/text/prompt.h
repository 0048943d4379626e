// Turns a prompt or a conversation into the tokens a model reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/text/chat_template.h"
#include "tessera/text/tokenizer.h"

namespace tessera {

class PromptMaker {
 public:
  // The tokenizer must outlive this object. Refuses a chat template that does not parse.
  PromptMaker(const Tokenizer& tokenizer, ChatSettings settings);

  bool has_template() const { return template_.has_value(); }

  // Plain text to be continued, after the tokens that the tokenizer puts before every text. Control
  // tokens spelled out in it count only if has_special. Refuses an empty result, and a text that
  // check_covered refuses.
  std::vector<int32_t> continuation(std::string_view text, bool has_special) const;

  // The messages as the model's chat template renders them, up to where the answer begins, with
  // more variables for it as ChatOptions::variables_json. Refuses if there is no template, and if
  // check_covered refuses the last message.
  std::vector<int32_t> chat(std::span<const ChatMessage> messages,
                            std::string_view variables_json = {}) const;

  // Refuses a text of which the tokenizer has no token at all: tokenizers without byte tokens drop
  // unknown characters, and the model would answer as if the prompt were empty.
  void check_covered(std::string_view text) const;

 private:
  const Tokenizer& tokenizer_;
  ChatSettings settings_;
  std::optional<ChatTemplate> template_;
};

}  // namespace tessera
