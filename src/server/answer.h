// What is sent back for one request: a JSON object at the end, or a stream of events.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/generation_request.h"
#include "server/http.h"

namespace tessera::server {

// "stop", "length"; "abort" and "timeout" for what was cancelled or too late.
std::string_view finish_name(FinishReason reason);

class Answer {
 public:
  // `model` must outlive it.
  Answer(const ServedModel& model, GenerationRequest request, std::string id, int64_t created);

  // Takes in what a step added to a sequence of prompt number `prompt`. Returns the text of the
  // events to be sent; empty if the request is not streamed.
  std::string take(size_t prompt, const SequenceOutput& output);
  bool is_done() const { return num_unfinished_ == 0; }
  std::string begin_events();  // what a stream begins with
  std::string end_events();    // usage, if asked for, and [DONE]
  std::string body();          // if not streamed, once it is done

  const GenerationRequest& request() const { return request_; }
  const std::string& id() const { return id_; }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_generated_tokens() const { return num_generated_tokens_; }

 private:
  struct Choice {
    std::string text;
    std::vector<OutputToken> tokens;  // if logprobs are wanted, or to choose the best of several
    std::vector<float> embedding;
    std::optional<CallReader> calls;  // if the request has tools
    FinishReason finish = FinishReason::none;
    int64_t num_tokens = 0;
    double total_logprob = 0;
    size_t text_offset = 0;  // of the next token, in characters
    bool has_echoed = false;
  };

  Choice& choice_at(size_t prompt, int32_t index) {
    return choices_[prompt * static_cast<size_t>(num_sampled_) + static_cast<size_t>(index)];
  }
  std::string event(size_t index, std::string_view payload, std::string_view logprobs,
                    std::string_view finish) const;
  // The reason as clients see it; empty: the choice goes on.
  std::string_view finish_of(const Choice& choice) const;
  std::string chat_delta(Choice& choice, std::string_view text, FinishReason finish);
  std::string chat_message(Choice& choice);
  std::string embedding_body() const;
  std::string token_event(size_t prompt, const SequenceOutput& output, Choice& choice);
  std::string chat_logprobs(const std::vector<OutputToken>& tokens) const;
  std::string completion_logprobs(size_t prompt, const std::vector<OutputToken>& tokens,
                                  bool with_prompt, size_t& offset) const;
  std::string usage() const;
  std::string token_json(int32_t token) const;  // its text as a JSON string

  const ServedModel& model_;
  GenerationRequest request_;
  std::string id_;
  std::string head_;  // {"id": ..., "model": ... without the closing brace
  int32_t num_sampled_;
  std::vector<Choice> choices_;                      // [prompts, sampled]
  std::vector<std::vector<float>> prompt_logprobs_;  // [prompts]
  size_t num_unfinished_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_cached_tokens_ = 0;
  int64_t num_generated_tokens_ = 0;
};

}  // namespace tessera::server
