// Names of finish reasons, and one request run to its end.
// SPDX-License-Identifier: MIT
#include "tessera/engine/request.h"

#include <iterator>
#include <utility>

#include "tessera/core/error.h"
#include "tessera/engine/engine.h"

namespace tessera {

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::deadline: return "deadline";
    case FinishReason::error: return "error";
  }
  return "unknown";
}

namespace {

void join(SequenceOutput& whole, SequenceOutput&& news) {
  whole.tokens.insert(whole.tokens.end(), std::make_move_iterator(news.tokens.begin()),
                      std::make_move_iterator(news.tokens.end()));
  whole.text += news.text;
  whole.finish = news.finish;
  whole.error = std::move(news.error);
  whole.score = news.score;
  if (news.num_prompt_tokens > 0) {
    whole.num_prompt_tokens = news.num_prompt_tokens;
    whole.num_cached_tokens = news.num_cached_tokens;
    whole.prompt_logprobs = std::move(news.prompt_logprobs);
  }
}

}  // namespace

std::vector<SequenceOutput> run_to_end(Engine& engine, Request request) {
  const auto num_outputs = static_cast<size_t>(request.num_outputs);
  const std::optional<RequestId> id = engine.submit(std::move(request));
  expects(id.has_value(), "run_to_end: the engine's queue is full; raise max_queue");
  std::vector<SequenceOutput> outputs(num_outputs);
  for (size_t i = 0; i < num_outputs; ++i) {
    outputs[i].request = *id;
    outputs[i].index = static_cast<int32_t>(i);
  }
  size_t num_finished = 0;
  while (num_finished < num_outputs) {
    for (SequenceOutput& news : engine.step()) {
      if (news.request != *id) continue;  // of requests that were there before
      num_finished += news.finish != FinishReason::none ? 1 : 0;
      join(outputs[static_cast<size_t>(news.index)], std::move(news));
    }
  }
  return outputs;
}

}  // namespace tessera
