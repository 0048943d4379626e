// What a client asks to be generated: the body of /v1/completions, /v1/chat/completions or
// /v1/embeddings, checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/validate.h"
#include "server/constraint.h"
#include "server/tools.h"
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
  int64_t hidden = 0;                                // numbers of an embedding
  std::optional<text::ToolFormat> tool_format = {};  // none: its template has no tool calls
  int64_t created = 0;                               // seconds since 1970
  std::string description = {};                      // "bf16, on cpu"
};

enum class Api : uint8_t { chat, completions, embeddings };

struct GenerationRequest {
  Api api = Api::completions;
  std::vector<Request> prompts = {};     // one for each prompt
  std::vector<std::string> echoes = {};  // by prompt; what stands before the generated text
  int32_t num_choices = 1;               // returned for each prompt
  bool is_streamed = false;
  bool wants_usage = false;  // at the end of a stream
  bool wants_echo = false;
  bool wants_logprobs = false;
  std::optional<FieldConstraint> constraint = {};  // to be compiled, and given to use_constraint
  std::optional<ToolUse> tools = {};
  bool is_normalized = false;             // embeddings have length 1
  bool is_base64 = false;                 // and are sent as the base64 of their floats
  std::vector<std::string> ignored = {};  // fields that mean nothing to this server
};

// Refuses, with an ApiError that names the field, what is malformed or could never run. Compiles no
// constraint, which may take long.
GenerationRequest read_generation(Api api, std::string_view body, const ServedModel& model);
GenerationRequest read_embedding(std::string_view body, const ServedModel& model);
void use_constraint(GenerationRequest& made, std::shared_ptr<const Constraint> constraint);

// Refuses a model that is not served; an absent one is the served one.
void check_model(Fields& fields, const ServedModel& model);

}  // namespace tessera::server
