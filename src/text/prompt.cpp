// Prompts and conversations to tokens.
// SPDX-License-Identifier: MIT
#include "tessera/text/prompt.h"

#include <string>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {

PromptMaker::PromptMaker(const Tokenizer& tokenizer, ChatSettings settings)
    : tokenizer_(tokenizer), settings_(std::move(settings)) {
  if (settings_.template_source) template_ = ChatTemplate::parse(*settings_.template_source);
}

void PromptMaker::check_covered(std::string_view text) const {
  if (text.empty() || !tokenizer_.encode(text).empty()) return;
  throw Error(concat("the model's tokenizer has no token for anything in the prompt of ",
                     text.size(), " bytes; write it in letters the model knows"));
}

std::vector<int32_t> PromptMaker::continuation(std::string_view text, bool has_special) const {
  check_covered(text);
  std::vector<int32_t> tokens = tokenizer_.prefix();
  const TextPart part = {.text = std::string(text), .is_control = has_special};
  const std::vector<int32_t> rest = tokenizer_.encode(std::span(&part, 1));
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  if (tokens.empty()) throw Error("the prompt is empty, and this model needs one");
  return tokens;
}

std::vector<int32_t> PromptMaker::chat(std::span<const ChatMessage> messages,
                                       std::string_view variables_json) const {
  if (!template_) throw Error("the model has no chat template; give it plain text to continue");
  if (!messages.empty()) check_covered(messages.back().content);
  const ChatOptions options = {.bos_token = settings_.bos_token,
                               .eos_token = settings_.eos_token,
                               .variables_json = std::string(variables_json)};
  return tokenizer_.encode(template_->render(messages, options));
}

}  // namespace tessera
