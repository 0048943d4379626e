// Prompts to tokens.
// SPDX-License-Identifier: MIT
#include "apps/prompt.h"

#include <algorithm>
#include <utility>

#include "apps/options.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

const Tokenizer& tokenizer_of(const Engine& engine) {
  if (engine.tokenizer() == nullptr) {
    throw Error("the model has no tokenizer.json; text needs one");
  }
  return *engine.tokenizer();
}

// Tokenizers without bytes pass over letters they have no token for. A prompt of nothing else would
// be answered as if it had been empty.
void expect_covered(std::string_view text, std::span<const int32_t> tokens) {
  if (text.empty() || !tokens.empty()) return;
  throw UsageError(concat("the model's tokenizer has no token for anything in the prompt of ",
                          text.size(), " bytes; write it in letters the model knows"));
}

}  // namespace

PromptMaker::PromptMaker(const Engine& engine, const std::filesystem::path& folder)
    : PromptMaker(tokenizer_of(engine), load_chat_settings(folder)) {}

PromptMaker::PromptMaker(const Tokenizer& tokenizer, ChatSettings settings)
    : tokenizer_(tokenizer), settings_(std::move(settings)) {
  if (settings_.template_source) template_ = ChatTemplate::parse(*settings_.template_source);
}

std::vector<int32_t> PromptMaker::continuation(std::string_view text, bool has_special) const {
  std::vector<int32_t> tokens = tokenizer_.prefix();
  const TextPart part = {.text = std::string(text), .is_control = has_special};
  const std::vector<int32_t> rest = tokenizer_.encode(std::span(&part, 1));
  expect_covered(text, rest);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  if (tokens.empty()) throw UsageError("the prompt is empty, and this model needs one");
  return tokens;
}

std::vector<int32_t> PromptMaker::chat(std::span<const ChatMessage> messages) const {
  if (!template_) {
    throw UsageError(
        "the model has no chat template; leave out --chat and --system to continue "
        "plain text");
  }
  if (!messages.empty()) {
    expect_covered(messages.back().content, tokenizer_.encode(messages.back().content));
  }
  const ChatOptions options = {.bos_token = settings_.bos_token, .eos_token = settings_.eos_token};
  return tokenizer_.encode(template_->render(messages, options));
}

void fit_to_context(Request& request, int64_t max_context) {
  const auto used = static_cast<int64_t>(request.prompt.size());
  if (used >= max_context) {
    throw Error(concat("the prompt has ", used, " tokens and the context ends at ", max_context,
                       "; shorten it, or raise --context where the model allows it"));
  }
  request.max_new_tokens = std::min(request.max_new_tokens, max_context - used);
  request.min_new_tokens = std::min(request.min_new_tokens, request.max_new_tokens);
}

RunArguments read_run_arguments(const std::vector<std::string>& positionals) {
  RunArguments read;
  if (positionals.empty()) return read;
  std::error_code ignored;
  if (positionals.size() > 1) {
    read.model = positionals[0];
    read.prompt = positionals[1];
  } else if (positionals[0].find_first_of(" \n\t") != std::string::npos &&
             !std::filesystem::exists(positionals[0], ignored)) {
    read.prompt = positionals[0];
  } else {
    read.model = positionals[0];
  }
  return read;
}

}  // namespace tessera::apps
