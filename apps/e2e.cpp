// Workloads by name, and the loop that times them.
// SPDX-License-Identifier: MIT
#include "apps/e2e.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "apps/options.h"
#include "bench/timer.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "pp512": the number after the letters.
std::optional<int64_t> count_after(std::string_view text, std::string_view letters) {
  if (!text.starts_with(letters)) return std::nullopt;
  const std::optional<int64_t> count = parse_quantity(text.substr(letters.size()));
  return count && *count > 0 ? count : std::nullopt;
}

Request make_request(const E2eShape& shape, int64_t num_new, int64_t vocab, std::mt19937& random) {
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab - 1));
  Request request;
  for (int64_t i = 0; i < shape.prompt; ++i) request.prompt.push_back(token(random));
  request.sampling.temperature = 0;
  request.max_new_tokens = num_new;
  request.ignores_eos = true;
  return request;
}

struct Pass {
  double prefill_seconds = 0;
  std::vector<double> step_seconds = {};
  EngineMetrics fullest = {};  // when most pages were held
};

// One run of the whole batch. A step counts as decoding once every sequence has its first token.
Pass run_pass(Engine& engine, const E2eShape& shape, int64_t num_new, std::mt19937& random) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    if (!engine.submit(make_request(shape, num_new, engine.vocab(), random))) {
      fail(concat("bench: the engine refused sequence ", i + 1, " of ", shape.batch));
    }
  }
  Pass pass;
  int64_t num_started = 0;
  const Clock::time_point start = Clock::now();
  while (engine.has_work()) {
    const bool is_decoding = num_started == shape.batch;
    const Clock::time_point before = Clock::now();
    const std::vector<SequenceOutput> news = engine.step();
    const double took = seconds_since(before);
    int64_t num_tokens = 0;
    for (const SequenceOutput& one : news) {
      if (one.finish == FinishReason::error) throw Error(one.error);
      num_tokens += static_cast<int64_t>(one.tokens.size());
      num_started += !one.tokens.empty() && one.num_prompt_tokens > 0 ? 1 : 0;
    }
    if (is_decoding) {
      if (num_tokens == shape.batch) pass.step_seconds.push_back(took);
    } else if (num_started == shape.batch) {
      pass.prefill_seconds = seconds_since(start);
    }
    if (num_started < shape.batch) continue;  // the prefill is timed as a whole
    const EngineMetrics metrics = engine.metrics();
    if (metrics.num_held_pages >= pass.fullest.num_held_pages) pass.fullest = metrics;
  }
  return pass;
}

}  // namespace

const std::vector<E2eWorkload>& e2e_workloads() {
  static const std::vector<E2eWorkload> kWorkloads = {
      {"e2e/single", {{.batch = 1, .prompt = 512, .generate = 128}}},
      {"e2e/locked", {{.batch = 16, .prompt = 512, .generate = 512}}},
      {"e2e/prefill",
       {{.batch = 1, .prompt = 512, .generate = 0},
        {.batch = 1, .prompt = 2048, .generate = 0},
        {.batch = 1, .prompt = 8192, .generate = 0},
        {.batch = 16, .prompt = 512, .generate = 0}}}};
  return kWorkloads;
}

std::optional<E2eWorkload> find_e2e_workload(std::string_view name) {
  for (const E2eWorkload& workload : e2e_workloads()) {
    if (workload.name == name || workload.name == concat("e2e/", name)) return workload;
  }
  const size_t plus = name.find('+');
  const std::string_view first = name.substr(0, plus);
  const std::optional<int64_t> prompt = count_after(first, "pp");
  std::optional<int64_t> generate;
  if (plus == std::string_view::npos) {
    generate = count_after(first, "tg");
  } else {
    generate = count_after(name.substr(plus + 1), "tg");
    if (!prompt || !generate) return std::nullopt;
  }
  if (!prompt && !generate) return std::nullopt;
  // tg128 alone starts from one token.
  const E2eShape shape = {.prompt = prompt.value_or(1), .generate = generate.value_or(0)};
  return E2eWorkload{.name = std::string(name), .shapes = {shape}};
}

double E2eResult::prefill_rate() const {
  if (prefill_seconds <= 0) return 0;
  return static_cast<double>(shape.batch * shape.prompt) / prefill_seconds;
}

double E2eResult::decode_rate() const {
  const double seconds = std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  if (seconds <= 0) return 0;
  return static_cast<double>(shape.batch) * static_cast<double>(step_seconds.size()) / seconds;
}

EngineOptions e2e_options(EngineOptions options, const E2eShape& shape, int64_t page_bytes) {
  // Beside the tokens one place, for the token that ends the pass.
  const int64_t context = shape.num_tokens() + 1;
  const int64_t pages = (context + options.page_size - 1) / options.page_size + 1;
  options.max_batch = shape.batch;
  options.max_queue = std::max(options.max_queue, shape.batch);
  if (options.max_context == 0) options.max_context = context;
  if (options.kv_bytes == 0) {
    options.kv_bytes = shape.batch * pages * page_bytes;
  }
  options.use_prefix_cache = false;  // random prompts share nothing
  return options;
}

E2eResult run_e2e(Engine& engine, const E2eShape& shape, int num_warmup, int num_repeats) {
  std::mt19937 random(7);
  E2eResult result = {.shape = shape};
  std::vector<double> prefills;
  // The prefill's own step makes the first token: `generate` decoding steps follow it.
  const int64_t num_new = shape.generate + 1;
  for (int i = 0; i < num_warmup + num_repeats; ++i) {
    const Pass pass = run_pass(engine, shape, num_new, random);
    result.metrics = pass.fullest;
    if (i < num_warmup) continue;
    prefills.push_back(pass.prefill_seconds);
    result.step_seconds.insert(result.step_seconds.end(), pass.step_seconds.begin(),
                               pass.step_seconds.end());
  }
  result.prefill_seconds = bench::percentile(prefills, 0.5);
  return result;
}

}  // namespace tessera::apps
