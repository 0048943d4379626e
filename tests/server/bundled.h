// The bundled model's tokenizer as requests are read with it; no weights.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "server/generation_request.h"

namespace tessera::testing {

class Bundled {
 public:
  // Without a template it is a base model.
  explicit Bundled(const std::optional<std::string>& chat_template = {})
      : tokenizer_(Tokenizer::load(std::filesystem::path(TESSERA_SOURCE_DIR) /
                                   "models/tessera-13m/tokenizer.json")),
        prompts_(tokenizer_, {.template_source = chat_template, .bos_token = {}, .eos_token = {}}) {
    model_ = {.name = "tessera-13m",
              .tokenizer = &tokenizer_,
              .prompts = &prompts_,
              .capacity = {.vocab = tokenizer_.num_ids(),
                           .max_context = 64,
                           .max_batch = 8,
                           .max_step_tokens = 64,
                           .max_step_logits = 8,
                           .page_size = 16,
                           .num_pages = 64,
                           .has_tokenizer = true},
              .hidden = 384};
    if (chat_template) model_.tool_format = text::find_tool_format(*chat_template);
  }

  const server::ServedModel& model() const { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }

 private:
  Tokenizer tokenizer_;
  PromptMaker prompts_;
  server::ServedModel model_;
};

}  // namespace tessera::testing
