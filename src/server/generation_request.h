// What a client asks to be generated: the body of /v1/completions or /v1/chat/completions, checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/validate.h"
#include "tessera/engine/request.h"
#include "tessera/text/prompt.h"

namespace tessera::server {

inline constexpr int64_t kMaxPrompts = 256;  // of one request

// The model as request parsing needs it. What it points to must outlive it.
struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  const PromptMaker* prompts = nullptr;
  engine::Capacity capacity = {};
  int64_t created = 0;           // seconds since 1970
  std::string description = {};  // "bf16, on cpu"
};

enum class Api : uint8_t { chat, completions };

struct GenerationRequest {
  Api api = Api::completions;
  std::vector<Request> prompts = {};     // one for each prompt
  std::vector<std::string> echoes = {};  // by prompt; what stands before the generated text
  int32_t num_choices = 1;               // returned for each prompt
  bool is_streamed = false;
  bool wants_usage = false;  // at the end of a stream
  bool wants_echo = false;
  bool wants_logprobs = false;
  std::vector<std::string> ignored = {};  // fields that mean nothing to this server
};

// Refuses, with an ApiError that names the field, what is malformed or could never run.
GenerationRequest read_generation(Api api, std::string_view body, const ServedModel& model);

// The messages of a conversation, from the field of that name.
class Fields;
std::vector<ChatMessage> read_messages(Fields& fields);
// Refuses a model that is not served; an absent one is the served one.
void check_model(Fields& fields, const ServedModel& model);
// Plain text as a prompt; what the tokenizer refuses is refused as `field`.
std::vector<int32_t> encode_prompt(const ServedModel& model, const std::string& text,
                                   const std::string& field);

}  // namespace tessera::server
