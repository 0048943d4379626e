// The workloads of `tessera bench e2e`, and how they are run and timed.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <numeric>

#include "apps/e2e.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "bench/ceilings.h"
#include "bench/timer.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The number in "pp512".
std::optional<int64_t> count_after(std::string_view text, std::string_view letters) {
  if (!text.starts_with(letters)) return std::nullopt;
  const std::optional<int64_t> count = parse_quantity(text.substr(letters.size()));
  return count && *count > 0 ? count : std::nullopt;
}

Request make_request(const E2eShape& shape, int64_t vocab, std::mt19937& random,
                     const ConstraintPtr& constraint) {
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(vocab - 1));
  Request request;
  for (int64_t i = 0; i < shape.prompt; ++i) request.prompt.push_back(token(random));
  request.sampling.temperature = 0;
  request.max_new_tokens = shape.generate + 1;  // prefill itself yields the first token
  request.ignores_eos = true;
  request.constraint = constraint;
  return request;
}

// The energy counter from one moment to another.
class EnergyClock {
 public:
  explicit EnergyClock(const bench::PowerMeter* power) : power_(power) { start(); }
  void start() {
    if (power_ != nullptr) joules_ = power_->energy_joules();
    start_ = Clock::now();
  }
  std::optional<Energy> stop(int64_t tokens) const {
    if (!joules_) return std::nullopt;
    const double seconds = seconds_since(start_);
    const std::optional<double> now = power_->energy_joules();
    if (!now) return std::nullopt;
    return Energy{.joules = *now - *joules_, .seconds = seconds, .tokens = tokens};
  }

 private:
  const bench::PowerMeter* power_;
  std::optional<double> joules_;
  Clock::time_point start_;
};

// Sequences of `context` tokens in all. Prompts are read one after the other, and those that are
// done generate meanwhile, so that each generates enough for all to decode together at the end:
// a token for each step that the prompts take on a GPU, and some more.
std::vector<E2eShape> context_shapes() {
  constexpr int64_t kStepTokens = 2048, kSteps = 16;
  std::vector<E2eShape> shapes;
  for (const int64_t batch : {1, 4, 16}) {
    for (int64_t context = 1024; context <= 131'072; context *= 2) {
      const int64_t meanwhile = batch == 1 ? 0 : batch * context / kStepTokens + batch;
      const int64_t generate = kSteps + meanwhile;
      shapes.push_back({.batch = batch, .prompt = context - generate - 1, .generate = generate});
    }
  }
  return shapes;
}

}  // namespace

const std::vector<E2eWorkload>& e2e_workloads() {
  static const std::vector<E2eWorkload> kWorkloads = {
      {"e2e/single", {{.batch = 1, .prompt = 512, .generate = 128}}},
      {"e2e/locked", {{.batch = 16, .prompt = 512, .generate = 512}}},
      {"e2e/batch64", {{.batch = 64, .prompt = 512, .generate = 512}}},
      {"e2e/prefill",
       {{.batch = 1, .prompt = 512, .generate = 0},
        {.batch = 1, .prompt = 2048, .generate = 0},
        {.batch = 1, .prompt = 8192, .generate = 0},
        {.batch = 1, .prompt = 32'768, .generate = 0},
        {.batch = 1, .prompt = 131'071, .generate = 0},
        {.batch = 16, .prompt = 512, .generate = 0}}},
      {"e2e/context", context_shapes()}};
  return kWorkloads;
}

std::string e2e_workload_names() {
  std::string names;
  for (const E2eWorkload& workload : e2e_workloads()) {
    names += concat(names.empty() ? "" : ", ", workload.name);
  }
  return names;
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

Pass run_pass(Engine& engine, const E2eShape& shape, std::mt19937& random, const PassWatch& watch,
              const ConstraintPtr& constraint) {
  for (int64_t i = 0; i < shape.batch; ++i) {
    if (!engine.submit(make_request(shape, engine.vocab(), random, constraint))) {
      fail(concat("bench: the engine refused sequence ", i + 1, " of ", shape.batch));
    }
  }
  Pass pass;
  StepClock clock(engine);
  EnergyClock energy(watch.power);
  int64_t num_started = 0;
  const Clock::time_point start = Clock::now();
  for (; engine.has_work(); ++pass.num_steps) {
    const bool is_decoding = num_started == shape.batch;
    if (watch.before_step) watch.before_step(pass.num_steps);
    clock.begin_step(pass.num_steps);
    const std::vector<SequenceOutput> news = engine.step();
    clock.end_step();
    if (watch.after_step) watch.after_step(clock, pass.num_steps);
    int64_t num_tokens = 0;
    for (const SequenceOutput& one : news) {
      if (one.finish == FinishReason::error) throw Error(one.error);
      num_tokens += static_cast<int64_t>(one.tokens.size());
      num_started += !one.tokens.empty() && one.num_prompt_tokens > 0 ? 1 : 0;
    }
    if (is_decoding && num_tokens >= shape.batch) {
      pass.num_decoded += num_tokens;
      pass.step_seconds.push_back(static_cast<double>(clock.step().end_ns - clock.step().begin_ns) *
                                  1e-9);
      pass.host_seconds.push_back(clock.host_seconds());
    } else if (!is_decoding && num_started == shape.batch) {
      pass.prefill_seconds = seconds_since(start);
      pass.num_prefill_steps = pass.num_steps + 1;
      if (shape.generate > 0) energy.start();
    }
    if (num_started < shape.batch) continue;  // still prefill, which is timed as a whole
    const EngineMetrics metrics = engine.metrics();
    if (metrics.num_held_pages >= pass.fullest.num_held_pages) pass.fullest = metrics;
  }
  pass.seconds = seconds_since(start);
  pass.energy = energy.stop(shape.batch * (shape.generate > 0 ? shape.generate : shape.prompt));
  return pass;
}

double E2eResult::prefill_rate() const {
  if (prefill_seconds <= 0) return 0;
  return static_cast<double>(shape.batch * shape.prompt) / prefill_seconds;
}

double E2eResult::decode_rate() const {
  const double seconds = std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0);
  if (seconds <= 0) return 0;
  return static_cast<double>(num_decoded) / seconds;
}

EngineOptions e2e_options(EngineOptions options, const E2eShape& shape, int64_t page_bytes) {
  // One more position, for the token that ends the pass.
  const int64_t context = shape.num_tokens() + 1;
  const int64_t pages = (context + options.page_size - 1) / options.page_size + 1;
  options.max_batch = shape.batch;
  add_draft_rows(options);
  options.max_queue = std::max(options.max_queue, shape.batch);
  if (options.max_context == 0) options.max_context = context;
  if (options.kv_bytes == 0) {
    options.kv_bytes = shape.batch * pages * page_bytes;
  }
  options.use_prefix_cache = false;  // random prompts share nothing
  return options;
}

E2eResult run_e2e(Engine& engine, const E2eShape& shape, int num_warmup, int num_repeats,
                  const ConstraintPtr& constraint, uint32_t seed) {
  std::mt19937 random(seed);
  E2eResult result = {.shape = shape};
  std::vector<double> prefills, passes;
  std::optional<bench::PowerMeter> power;
  if (!engine.device().is_cpu()) power.emplace(bench::pci_bus_id(engine.device()));
  for (int i = 0; i < num_warmup + num_repeats; ++i) {
    const Pass pass =
        run_pass(engine, shape, random, {.power = power ? &*power : nullptr}, constraint);
    result.metrics = pass.fullest;
    result.num_steps = pass.num_steps;
    result.num_prefill_steps = pass.num_prefill_steps;
    if (i < num_warmup) continue;
    prefills.push_back(pass.prefill_seconds);
    passes.push_back(pass.seconds);
    result.num_decoded += pass.num_decoded;
    result.step_seconds.insert(result.step_seconds.end(), pass.step_seconds.begin(),
                               pass.step_seconds.end());
    result.host_seconds.insert(result.host_seconds.end(), pass.host_seconds.begin(),
                               pass.host_seconds.end());
    if (!pass.energy) continue;
    Energy& all = result.energy ? *result.energy : result.energy.emplace();
    all.joules += pass.energy->joules;
    all.seconds += pass.energy->seconds;
    all.tokens += pass.energy->tokens;
  }
  result.prefill_seconds = bench::percentile(prefills, 0.5);
  result.pass_seconds = bench::percentile(passes, 0.5);
  return result;
}

}  // namespace tessera::apps
