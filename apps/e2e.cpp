// `tessera bench e2e`: prefill and decode speeds of a whole model, and the memory it takes.
// SPDX-License-Identifier: MIT
#include "apps/e2e.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "bench/report.h"
#include "bench/result_file.h"
#include "bench/timer.h"
#include "core/build_info.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/make_engine.h"
#include "engine/memory_check.h"
#include "engine/validate.h"
#include "model/config.h"
#include "model/kv_layout.h"
#include "model/model.h"
#include "tessera/core/error.h"
#include "tessera/core/memory_use.h"

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
  EngineMetrics fullest = {};  // at the step with the most pages in use
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
    if (num_started < shape.batch) continue;  // still prefill, which is timed as a whole
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
  // One more position, for the token that ends the pass.
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
  // Prefill itself yields the first token; `generate` decode steps follow.
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

namespace {

using Json = nlohmann::ordered_json;

struct BenchE2eOptions {
  ModelOptions model;
  std::string workload;
  std::string folder;
  std::string shape;
  int64_t batch = 0;
  int64_t prompt = 0;
  int64_t generate = -1;
  int64_t repeat = 3;
  int64_t warmup = 1;
  std::string json;
};

// The model to time: from a folder, or a named shape with random weights.
struct Subject {
  std::string name;
  std::filesystem::path folder;  // empty: random weights
  model::ModelConfig config;
};

Subject find_subject(const BenchE2eOptions& options) {
  if (options.shape.empty()) {
    const std::filesystem::path folder = find_model(options.folder);
    return {
        .name = folder.filename().string(), .folder = folder, .config = model::load_config(folder)};
  }
  if (!options.folder.empty()) throw UsageError("--model and --shape were given; give one of them");
  const std::optional<model::ModelConfig> preset = model::find_preset(options.shape);
  if (preset) return {.name = options.shape, .folder = {}, .config = *preset};
  std::string all;
  std::vector<std::string> names;
  for (const std::string_view name : model::preset_names()) {
    all += concat(all.empty() ? "" : ", ", name);
    names.emplace_back(name);
  }
  throw UsageError(concat("no shape '", options.shape, "'", did_you_mean(options.shape, names),
                          "; there are ", all));
}

E2eWorkload find_workload(const BenchE2eOptions& options) {
  const bool has_numbers = options.batch > 0 || options.prompt > 0 || options.generate >= 0;
  if (!options.workload.empty()) {
    if (has_numbers) {
      throw UsageError("a workload has its own --batch, --prompt and --generate; leave them out");
    }
    if (auto found = find_e2e_workload(options.workload)) return *found;
    throw UsageError(concat("no workload '", options.workload, "'; there are e2e/single, ",
                            "e2e/locked, e2e/prefill, and such as pp512, tg128, pp512+tg128"));
  }
  if (!has_numbers) return e2e_workloads().front();
  E2eShape shape;
  if (options.batch > 0) shape.batch = options.batch;
  if (options.prompt > 0) shape.prompt = options.prompt;
  if (options.generate >= 0) shape.generate = options.generate;
  return {.name = "e2e", .shapes = {shape}};
}

std::unique_ptr<Engine> make_subject_engine(const Subject& subject, const EngineOptions& options) {
  if (!subject.folder.empty()) {
    return load_engine(engine::open_model(subject.folder, subject.config, options));
  }
  engine::check_memory(subject.config, options);
  Progress progress("making weights");
  const model::LoadOptions load = {
      .dtype = options.dtype,
      .format = options.weights,
      .device = options.device,
      .on_progress = [&](int64_t done, int64_t total) { progress.show_bytes(done, total); }};
  return engine::make_engine(model::make_random_model(subject.config, load, /*seed=*/1),
                             std::nullopt, options);
}

// Bytes of weights that a decode step reads: all but the embedding, of which it reads one row per
// sequence. If the embedding is also the output head, all weights.
double read_weight_bytes(const Subject& subject, const EngineMetrics& metrics,
                         const EngineOptions& options) {
  const model::ModelConfig& config = subject.config;
  const bool is_head = config.has_tied_embeddings && options.weights == WeightFormat::plain;
  const int64_t embedding = config.vocab * config.hidden * bit_width(options.dtype) / 8;
  return static_cast<double>(metrics.weight_bytes - (is_head ? 0 : embedding));
}

Json result_json(const std::string& workload, const E2eResult& result, double read_bytes) {
  const EngineMetrics& metrics = result.metrics;
  Json json = {{"workload", workload},
               {"shape",
                {{"batch", result.shape.batch},
                 {"prompt", result.shape.prompt},
                 {"generate", result.shape.generate}}},
               {"prefill_tokens_per_second", rounded(result.prefill_rate())},
               {"prefill_ms", rounded(result.prefill_seconds * 1e3)}};
  if (!result.step_seconds.empty()) {
    const auto milliseconds = [&](double share) {
      return rounded(bench::percentile(result.step_seconds, share) * 1e3);
    };
    json["decode_tokens_per_second"] = rounded(result.decode_rate());
    json["step_ms"] = {
        {"median", milliseconds(0.5)}, {"p10", milliseconds(0.1)}, {"p90", milliseconds(0.9)}};
    json["weight_gbs"] = rounded(read_bytes / bench::percentile(result.step_seconds, 0.5) / 1e9);
  }
  json["memory"] = {{"weight_bytes", metrics.weight_bytes},
                    {"kv_bytes", metrics.kv_bytes},
                    {"kv_bytes_per_token", metrics.kv_bytes_per_token},
                    {"kv_waste", rounded(metrics.kv_waste)},
                    {"activation_bytes", metrics.activation_bytes},
                    {"device_bytes", metrics.device_bytes},
                    {"peak_device_bytes", metrics.peak_device_bytes},
                    {"peak_resident_bytes", metrics.peak_host_bytes}};
  return json;
}

std::string result_text(const Json& result) {
  const Json& shape = result["shape"];
  const Json& memory = result["memory"];
  const auto bytes = [&](const char* key) { return show_bytes(memory[key].get<int64_t>()); };
  std::string text =
      concat(result["workload"].get<std::string>(), ": batch ", shape["batch"], ", prompt ",
             shape["prompt"], ", generate ", shape["generate"], "\n  prefill ",
             show_rate(result["prefill_tokens_per_second"].get<double>()), " (",
             result["prefill_ms"].get<double>(), " ms)\n");
  if (result.contains("step_ms")) {
    const Json& step = result["step_ms"];
    text += concat("  decode  ", show_rate(result["decode_tokens_per_second"].get<double>()),
                   ", step ", step["median"].get<double>(), " ms (p10 ", step["p10"].get<double>(),
                   ", p90 ", step["p90"].get<double>(), "), weights ",
                   result["weight_gbs"].get<double>(), " GB/s\n");
  }
  return text + concat("  memory  weights ", bytes("weight_bytes"), ", keys and values ",
                       bytes("kv_bytes"), " (", fixed(memory["kv_waste"].get<double>() * 100, 1),
                       " % empty)", ", activations ", bytes("activation_bytes"), ", peak ",
                       bytes("peak_device_bytes"), ", peak of the process ",
                       bytes("peak_resident_bytes"), "\n");
}

void run(const BenchE2eOptions& options) {
  const Subject subject = find_subject(options);
  const E2eWorkload workload = find_workload(options);
  const EngineOptions base = engine_options(options.model, subject.config);
  const int64_t page_bytes = model::kv_page_bytes(
      subject.config, subject.config.num_kv_heads,
      {.page_size = base.page_size, .dtype = base.dtype, .type = base.kv_type});
  const bool is_text = options.json != "-";
  std::optional<bench::ResultFile> file;
  if (is_text && !options.json.empty()) file.emplace(options.json);
  Json report = {{"cpu", bench::cpu_name()},
                 {"simd", bench::simd_name()},
                 {"threads", num_threads()},
                 {"device", show_device(base.device)},
                 {"commit", kCommit},
                 {"date", bench::current_date()},
                 {"model", subject.name},
                 {"parameters", subject.config.num_parameters()},
                 {"random_weights", subject.folder.empty()},
                 {"dtype", options.model.dtype},
                 {"weights", options.model.weights},
                 {"kv", options.model.kv},
                 {"results", Json::array()}};
  if (is_text) {
    write_out(concat(shown(subject.name), ", ", show_count(subject.config.num_parameters()),
                     " parameters, ", options.model.dtype, ", weights ", options.model.weights,
                     ", kv ", options.model.kv, "; on ", show_device(base.device), "; ",
                     bench::cpu_name(), ", ", num_threads(), " threads, ", bench::simd_name(),
                     ", commit ", kCommit, "\n"));
  }
  for (const E2eShape& shape : workload.shapes) {
    if (shape.num_tokens() >= subject.config.max_positions) {
      write_note(concat("tessera: bench e2e: left out ", shape.num_tokens(), " tokens and one to ",
                        "come: ", subject.name, " takes ", subject.config.max_positions, "\n"));
      continue;
    }
    const EngineOptions made = as_usage(
        [&] { return engine::fill_options(e2e_options(base, shape, page_bytes), subject.config); });
    reset_peak_bytes(made.device);
    const std::unique_ptr<Engine> engine = make_subject_engine(subject, made);
    const E2eResult result =
        run_e2e(*engine, shape, static_cast<int>(options.warmup), static_cast<int>(options.repeat));
    report["results"].push_back(
        result_json(workload.name, result, read_weight_bytes(subject, result.metrics, made)));
    if (!made.device.is_cpu()) {
      report["results"].back()["memory"]["driver_used_bytes"] = used_device_bytes(made.device);
    }
    if (is_text) write_out(result_text(report["results"].back()));
  }
  if (report["results"].empty()) throw Error("bench e2e: no shape of the workload fits the model");
  if (file) file->write(json_text(report));
  if (!is_text) write_out(json_text(report));
}

}  // namespace

void add_bench_e2e(CLI::App& bench, int&) {
  const auto options = std::make_shared<BenchE2eOptions>();
  Verb verb(bench, "e2e", "Times a whole model: prefill, decode and memory");
  verb.positional("WORKLOAD", options->workload,
                  "e2e/single (the default), e2e/locked, e2e/prefill, or such as pp512+tg128");
  FlagSet flags(verb, "What is timed");
  flags.value("--model", options->folder, "FOLDER", "A model's folder; the bundled one if absent");
  flags.value("--shape", options->shape, "NAME",
              "Random weights in a known shape, such as llama3-8b, instead of --model");
  flags.quantity("--batch", options->batch, "N", "Sequences at once; 1 if absent");
  flags.quantity("--prompt", options->prompt, "N", "Tokens of a prompt; 512 if absent");
  flags.quantity("--generate", options->generate, "N", "Tokens to generate; 128 if absent");
  flags.ranged("--repeat", options->repeat, 1, 1000, "N", "Timed passes");
  flags.ranged("--warmup", options->warmup, 0, 1000, "N", "Passes before them");
  flags.value("--json", options->json, "FILE", "Write the results to this file; - prints them");
  add_model_flags(verb, options->model);
  verb.on_run([options] { run(*options); });
}

}  // namespace tessera::apps
