// Runs the engine for one request and times it.
// SPDX-License-Identifier: MIT
#include "apps/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "apps/output.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

// Appends the output of one step to what came before.
void join(SequenceOutput& all, SequenceOutput&& news) {
  std::ranges::move(news.tokens, std::back_inserter(all.tokens));
  all.text += news.text;
  all.finish = news.finish;
  all.error = std::move(news.error);
  all.num_prompt_tokens = std::max(all.num_prompt_tokens, news.num_prompt_tokens);
  all.num_cached_tokens = std::max(all.num_cached_tokens, news.num_cached_tokens);
  all.score = news.score;
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

double Speeds::prefill_rate() const {
  if (first_token_seconds <= 0) return 0;
  return static_cast<double>(num_prompt_tokens - num_cached_tokens) / first_token_seconds;
}

double Speeds::decode_rate() const {
  if (decode_seconds <= 0) return 0;
  return static_cast<double>(num_generated_tokens - num_first_tokens) / decode_seconds;
}

std::string show(const Speeds& speeds) {
  std::string cached;
  if (speeds.num_cached_tokens > 0) cached = concat(" (", speeds.num_cached_tokens, " cached)");
  std::string decode;
  if (speeds.decode_rate() > 0) decode = concat(", decode ", show_rate(speeds.decode_rate()));
  return concat(speeds.num_prompt_tokens, " prompt tokens", cached, ", ",
                speeds.num_generated_tokens, " generated; prefill ",
                show_rate(speeds.prefill_rate()), decode, ", first token ",
                fixed(speeds.first_token_seconds * 1e3, 1), " ms");
}

double tokens_per_step(const EngineMetrics& metrics) {
  const int64_t num_steps = metrics.num_generated_tokens - metrics.num_accepted_tokens;
  if (num_steps == 0) return 1.0;
  return static_cast<double>(metrics.num_generated_tokens) / static_cast<double>(num_steps);
}

Generation generate(Engine& engine, Request request,
                    const std::function<void(std::string_view)>& on_text,
                    const std::function<bool()>& is_stopped,
                    const std::function<void(double seconds)>& on_first) {
  Generation made;
  made.outputs.resize(static_cast<size_t>(std::max(request.num_outputs, 1)));
  Speeds& speeds = made.speeds;
  speeds.num_prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const Clock::time_point start = Clock::now();
  const std::optional<RequestId> id = engine.submit(std::move(request));
  if (!id) throw Error("the engine's queue is full; try again");
  Clock::time_point first = start;
  bool is_cancelled = false;
  while (engine.has_work()) {
    if (!is_cancelled && is_stopped && is_stopped()) {
      engine.cancel(*id);
      is_cancelled = true;
    }
    std::vector<SequenceOutput> news = engine.step();
    const Clock::time_point now = Clock::now();
    const bool is_first = speeds.num_generated_tokens == 0;
    for (SequenceOutput& one : news) {
      if (one.request != *id || one.index < 0) continue;
      if (one.finish == FinishReason::error) throw Error(one.error);
      speeds.num_generated_tokens += static_cast<int64_t>(one.tokens.size());
      if (one.index == 0 && on_text && !one.text.empty()) on_text(one.text);
      if (static_cast<size_t>(one.index) >= made.outputs.size()) continue;
      join(made.outputs[static_cast<size_t>(one.index)], std::move(one));
    }
    if (is_first && speeds.num_generated_tokens > 0) {
      first = now;
      speeds.num_first_tokens = speeds.num_generated_tokens;
      speeds.first_token_seconds = seconds_between(start, first);
      if (on_first) on_first(speeds.first_token_seconds);
    }
    if (speeds.num_generated_tokens > 0) speeds.decode_seconds = seconds_between(first, now);
  }
  speeds.num_cached_tokens = made.outputs.front().num_cached_tokens;
  return made;
}

}  // namespace tessera::apps
