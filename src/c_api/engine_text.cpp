// Tokenizer and chat template of a loaded model through the C ABI.
// SPDX-License-Identifier: MIT
#include <span>

#include "c_api/engine_handle.h"
#include "core/text.h"
#include "engine/early_start.h"
#include "tessera/core/error.h"

using namespace tessera;
using namespace tessera::c_api;

TesseraEngine::TesseraEngine(const std::string& folder, const TesseraEngineOptions* options)
    : host(std::make_shared<EngineHost>(Engine::load(folder, read_options(options, folder)))),
      settings(engine::read_chat_settings(folder)),
      prompts(host->tokenizer(), {}) {}

const ChatTemplate& TesseraEngine::chat_template() const {
  const std::lock_guard lock(mutex_);
  if (!template_) {
    if (!settings.template_source) {
      fail("the model has no chat template; give it plain text to continue");
    }
    template_ = ChatTemplate::parse(*settings.template_source);
  }
  return *template_;
}

std::vector<TextPart> TesseraEngine::render(const char* messages_json, const char* template_json,
                                            bool add_generation_prompt) const {
  const std::vector<ChatMessage> messages = read_messages(messages_json);
  if (messages.empty()) fail("messages_json has no messages; give at least one");
  prompts.check_covered(messages.back().content);
  return chat_template().render(messages,
                                {.add_generation_prompt = add_generation_prompt,
                                 .bos_token = settings.bos_token,
                                 .eos_token = settings.eos_token,
                                 .variables_json = template_json == nullptr ? "" : template_json});
}

namespace {

const Tokenizer& tokenizer_of(const TesseraEngine* engine) {
  return given(engine, "engine").host->tokenizer();
}

}  // namespace

TesseraStatus tessera_engine_encode(const TesseraEngine* engine, const char* text,
                                    int64_t num_bytes, int32_t add_special, int32_t has_special,
                                    int32_t* tokens, int64_t capacity, int64_t* count) {
  return guarded([&] {
    const Tokenizer& tokenizer = tokenizer_of(engine);
    const TextPart part = {.text = std::string(read_text(text, num_bytes, "engine_encode: text")),
                           .is_control = has_special != 0};
    std::vector<int32_t> ids;
    if (add_special != 0) ids = tokenizer.prefix();
    const std::vector<int32_t> rest = tokenizer.encode(std::span(&part, 1));
    ids.insert(ids.end(), rest.begin(), rest.end());
    write_array<int32_t>(ids, tokens, capacity, count);
  });
}

TesseraStatus tessera_engine_decode(const TesseraEngine* engine, const int32_t* tokens,
                                    int64_t num_tokens, int32_t keep_special, char* text,
                                    int64_t capacity, int64_t* count) {
  return guarded([&] {
    const Tokenizer& tokenizer = tokenizer_of(engine);
    const auto ids = read_array(tokens, num_tokens, "engine_decode: tokens");
    for (const int32_t id : ids) {
      if (id >= 0 && id < tokenizer.num_ids()) continue;
      fail(concat("engine_decode: there is no token ", id, "; ids are 0 to ",
                  tokenizer.num_ids() - 1));
    }
    write_array<char>(tokenizer.decode(ids, keep_special != 0), text, capacity, count);
  });
}

TesseraStatus tessera_engine_token(const TesseraEngine* engine, int32_t token, char* text,
                                   int64_t capacity, int64_t* count) {
  return guarded([&] {
    const Tokenizer& tokenizer = tokenizer_of(engine);
    if (token < 0 || token >= tokenizer.num_ids()) {
      fail(concat("engine_token: there is no token ", token, "; ids are 0 to ",
                  tokenizer.num_ids() - 1));
    }
    write_array<char>(tokenizer.token_text(token), text, capacity, count);
  });
}

TesseraStatus tessera_engine_render(const TesseraEngine* engine, const char* messages_json,
                                    const char* template_json, int32_t add_generation_prompt,
                                    char* text, int64_t capacity, int64_t* count) {
  return guarded([&] {
    std::string whole;
    for (const TextPart& part :
         given(engine, "engine").render(messages_json, template_json, add_generation_prompt != 0)) {
      whole += part.text;
    }
    write_array<char>(whole, text, capacity, count);
  });
}

TesseraStatus tessera_engine_encode_chat(const TesseraEngine* engine, const char* messages_json,
                                         const char* template_json, int32_t add_generation_prompt,
                                         int32_t* tokens, int64_t capacity, int64_t* count) {
  return guarded([&] {
    const std::vector<TextPart> parts =
        given(engine, "engine").render(messages_json, template_json, add_generation_prompt != 0);
    write_array<int32_t>(tokenizer_of(engine).encode(parts), tokens, capacity, count);
  });
}
