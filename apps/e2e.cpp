// `tessera bench e2e`: prefill and decode speeds of a whole model, and the memory it takes.
// SPDX-License-Identifier: MIT
#include "apps/e2e.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/e2e_constraint.h"
#include "apps/e2e_explain.h"
#include "apps/e2e_subject.h"
#include "apps/generate.h"
#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/shape_tokenizer.h"
#include "apps/verbs.h"
#include "bench/ceilings.h"
#include "bench/device_trace.h"
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

using Json = nlohmann::ordered_json;

struct BenchE2eOptions {
  ModelOptions model;
  std::string workload;
  SubjectFlags subject;
  int64_t batch = 0;
  int64_t prompt = 0;
  int64_t generate = -1;
  int64_t repeat = 3;
  int64_t warmup = 1;
  std::string json;
  bool is_constrained = false;
  bool has_explain = false;
  std::string profile;
  std::optional<double> bandwidth_tbs = {};

  bool looks_at_steps() const { return has_explain || !profile.empty(); }
};

// Shorter runs do not move the GPU's energy counter often enough.
constexpr double kLeastEnergySeconds = 0.5;

E2eWorkload find_workload(const BenchE2eOptions& options) {
  const bool has_numbers = options.batch > 0 || options.prompt > 0 || options.generate >= 0;
  if (!options.workload.empty()) {
    if (has_numbers) {
      throw UsageError("a workload has its own --batch, --prompt and --generate; leave them out");
    }
    if (auto found = find_e2e_workload(options.workload)) return *found;
    throw UsageError(concat("no workload '", options.workload, "'; there are ",
                            e2e_workload_names(), ", and such as pp512, tg128, pp512+tg128"));
  }
  if (!has_numbers) return e2e_workloads().front();
  E2eShape shape;
  if (options.batch > 0) shape.batch = options.batch;
  if (options.prompt > 0) shape.prompt = options.prompt;
  if (options.generate >= 0) shape.generate = options.generate;
  return {.name = "e2e", .shapes = {shape}};
}

// Bytes of weights that a decode step reads: all but the embedding, of which it reads one row per
// sequence. If the embedding is also the output head, all weights.
double read_weight_bytes(const Subject& subject, const EngineMetrics& metrics,
                         const EngineOptions& options) {
  const model::ModelConfig& config = subject.config;
  const bool is_head = config.has_tied_embeddings && !is_quantizing(options.weights);
  const int64_t embedding = config.vocab * config.hidden * bit_width(options.dtype) / 8;
  return static_cast<double>(metrics.weight_bytes - (is_head ? 0 : embedding));
}

// The least time of the median decode step: the weights, and the keys and values of the middle of
// the run, once over the memory bus.
double step_floor_seconds(const E2eResult& result, double read_bytes, double read_tbs) {
  const double tokens = static_cast<double>(result.shape.prompt) +
                        (static_cast<double>(result.shape.generate) + 1) / 2;
  const double kv_bytes = static_cast<double>(result.shape.batch) * tokens *
                          static_cast<double>(result.metrics.kv_bytes_per_token);
  return (read_bytes + kv_bytes) / (read_tbs * 1e12);
}

void add_energy(const E2eResult& result, Json& json) {
  if (!result.energy || result.energy->seconds < kLeastEnergySeconds) return;
  const Energy& energy = *result.energy;
  const auto tokens = static_cast<double>(energy.tokens);
  json["energy"] = {{"of", result.shape.generate > 0 ? "decode" : "prefill"},
                    {"joules", rounded(energy.joules)},
                    {"seconds", rounded(energy.seconds)},
                    {"tokens", energy.tokens}};
  if (energy.joules <= 0) return;
  json["energy"]["joules_per_token"] = rounded(energy.joules / tokens);
  json["energy"]["tokens_per_joule"] = rounded(tokens / energy.joules);
}

Json result_json(const std::string& workload, const E2eResult& result, double read_bytes,
                 double read_tbs) {
  const EngineMetrics& metrics = result.metrics;
  Json json = {{"workload", workload},
               {"shape",
                {{"batch", result.shape.batch},
                 {"prompt", result.shape.prompt},
                 {"generate", result.shape.generate}}},
               {"prefill_tokens_per_second", rounded(result.prefill_rate())},
               {"prefill_ms", rounded(result.prefill_seconds * 1e3)},
               {"pass_ms", rounded(result.pass_seconds * 1e3)}};
  if (!result.step_seconds.empty()) {
    const auto milliseconds = [&](double share) {
      return rounded(bench::percentile(result.step_seconds, share) * 1e3);
    };
    json["decode_tokens_per_second"] = rounded(result.decode_rate());
    json["step_ms"] = {
        {"median", milliseconds(0.5)}, {"p10", milliseconds(0.1)}, {"p90", milliseconds(0.9)}};
    const double median = bench::percentile(result.step_seconds, 0.5);
    json["weight_gbs"] = rounded(read_bytes / median / 1e9);
    json["host_us"] = rounded(bench::percentile(result.host_seconds, 0.5) * 1e6);
    if (read_tbs > 0) {
      const double floor = step_floor_seconds(result, read_bytes, read_tbs);
      json["floor_ms"] = rounded(floor * 1e3);
      json["share_of_floor"] = rounded(floor / median);
    }
  }
  add_energy(result, json);
  if (metrics.num_drafted_tokens > 0) {
    json["drafts"] = {{"drafted_tokens", metrics.num_drafted_tokens},
                      {"accepted_tokens", metrics.num_accepted_tokens},
                      {"tokens_per_step", rounded(tokens_per_step(metrics))}};
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
    text +=
        concat("  decode  ", show_rate(result["decode_tokens_per_second"].get<double>()), ", step ",
               step["median"].get<double>(), " ms (p10 ", step["p10"].get<double>(), ", p90 ",
               step["p90"].get<double>(), "), weights ", result["weight_gbs"].get<double>(),
               " GB/s\n  host    ", result["host_us"].get<double>(), " us a step");
    if (result.contains("floor_ms")) {
      text += concat("; floor ", result["floor_ms"].get<double>(), " ms, ",
                     fixed(result["share_of_floor"].get<double>() * 100, 1), " % of the step");
    }
    text += "\n";
  }
  if (result.contains("drafts")) {
    const Json& drafts = result["drafts"];
    text += concat("  drafts  ", drafts["accepted_tokens"], " of ", drafts["drafted_tokens"],
                   " tokens accepted, in all passes; ",
                   fixed(drafts["tokens_per_step"].get<double>(), 2), " tokens a step\n");
  }
  if (result.contains("constraint")) text += constraint_text(result["constraint"]);
  if (result.contains("speed_up")) {
    text += concat("  plain   ", show_rate(result["plain_decode_tokens_per_second"].get<double>()),
                   " without speculation: ", fixed(result["speed_up"].get<double>(), 2),
                   " times as fast with it\n");
  }
  if (result.contains("energy") && result["energy"].contains("tokens_per_joule")) {
    text += concat("  energy  ", result["energy"]["tokens_per_joule"].get<double>(),
                   " tokens a joule\n");
  }
  return text + concat("  memory  weights ", bytes("weight_bytes"), ", keys and values ",
                       bytes("kv_bytes"), " (", fixed(memory["kv_waste"].get<double>() * 100, 1),
                       " % empty)", ", activations ", bytes("activation_bytes"), ", peak ",
                       bytes("peak_device_bytes"), ", peak of the process ",
                       bytes("peak_resident_bytes"), "\n");
}

void check_look(const BenchE2eOptions& options, const E2eWorkload& workload) {
  if (options.bandwidth_tbs &&
      !(*options.bandwidth_tbs > 0 && std::isfinite(*options.bandwidth_tbs)))
    throw UsageError(concat("--bandwidth is ", *options.bandwidth_tbs,
                            "; it is in TB/s and must be positive, such as 4.57"));
  if (options.profile.empty() || workload.shapes.size() == 1) return;
  throw UsageError(concat("--profile traces one shape and ", workload.name, " has ",
                          workload.shapes.size(), "; name one, such as pp2048"));
}

// A GPU's rates are measured before the model takes its memory. The CPU's take long and 0.5 GB, so
// that they are measured only for --explain.
bench::Ceilings find_ceilings(const BenchE2eOptions& options, Device device) {
  bench::Ceilings ceilings;
  const bool is_needed = device.is_cpu() ? options.has_explain && !options.bandwidth_tbs
                                         : options.has_explain || !options.bandwidth_tbs;
  if (is_needed) ceilings = bench::measure_ceilings(device);
  if (options.bandwidth_tbs) ceilings.read_tbs = *options.bandwidth_tbs;
  return ceilings;
}

// What all shapes of a run share.
struct Bench {
  const BenchE2eOptions& options;
  Subject subject;
  std::string workload;
  EngineOptions base = {};
  bench::Ceilings ceilings = {};
  std::unique_ptr<bench::DeviceTracer> tracer = {};  // null on the CPU, or where nothing is traced
  std::optional<bench::ResultFile> profile = {};
};

struct ShapeReport {
  Json json;
  std::string text;
};

ShapeReport run_shape(Bench& bench, const E2eShape& shape) {
  const BenchE2eOptions& options = bench.options;
  const EngineOptions made = as_usage([&] {
    const EngineOptions& base = bench.base;
    const int64_t page_bytes = model::kv_page_bytes(
        bench.subject.config, bench.subject.config.num_kv_heads,
        {.page_size = base.page_size, .dtype = base.dtype, .type = base.kv_type});
    return engine::fill_options(e2e_options(base, shape, page_bytes), bench.subject.config);
  });
  const auto time = [&](Engine& engine) {
    return run_e2e(engine, shape, static_cast<int>(options.warmup),
                   static_cast<int>(options.repeat));
  };
  double plain_rate = 0;  // without speculation, if there is some
  if (made.speculation != Speculation::off && shape.generate > 0) {
    EngineOptions plain = made;
    plain.speculation = Speculation::off;
    plain_rate = time(*make_subject_engine(bench.subject, plain)).decode_rate();
  }
  reset_peak_bytes(made.device);
  std::optional<Tokenizer> tokenizer;
  if (options.is_constrained && bench.subject.folder.empty()) {
    tokenizer = make_shape_tokenizer(bench.subject.config.vocab);
  }
  const std::unique_ptr<Engine> engine =
      make_subject_engine(bench.subject, made, std::move(tokenizer));
  std::optional<ConstraintCost> cost;
  if (options.is_constrained) {
    cost = measure_constraint(*engine, shape, static_cast<int>(options.warmup),
                              static_cast<int>(options.repeat));
  }
  const E2eResult result = cost ? cost->plain : time(*engine);
  ShapeReport report;
  report.json =
      result_json(bench.workload, result, read_weight_bytes(bench.subject, result.metrics, made),
                  bench.ceilings.read_tbs);
  if (!made.device.is_cpu()) {
    report.json["memory"]["driver_used_bytes"] = used_device_bytes(made.device);
  }
  if (cost) report.json["constraint"] = constraint_json(*cost);
  if (plain_rate > 0) {
    report.json["plain_decode_tokens_per_second"] = rounded(plain_rate);
    report.json["speed_up"] = rounded(result.decode_rate() / plain_rate);
  }
  report.text = result_text(report.json);
  if (!options.looks_at_steps()) return report;
  const Look look = look_at_steps(*engine, result, bench.ceilings, bench.tracer.get());
  report.json["busy_share"] = rounded(look.explanation.busy_share());
  if (bench.profile) bench.profile->write(bench::trace_json(look.trace, show_device(made.device)));
  if (!options.has_explain) return report;
  report.json["explained_step"] = explain_sum_json(look, bench.ceilings);
  report.json["explain"] = explain_rows_json(look.explanation);
  report.text += explain_text(look, bench.ceilings);
  return report;
}

// The reports of the shapes that the model and the memory take. Of several shapes, one that does
// not fit is left out.
void run_shapes(Bench& bench, const std::vector<E2eShape>& shapes, bool is_text, Json& results) {
  const model::ModelConfig& config = bench.subject.config;
  for (const E2eShape& shape : shapes) {
    const auto leave_out = [&](std::string_view why) {
      write_note(concat("tessera: bench e2e: left out ", shape.batch, " x ", shape.num_tokens(),
                        " tokens and one to come: ", why, "\n"));
    };
    if (shape.num_tokens() >= config.max_positions) {
      leave_out(concat(bench.subject.name, " takes ", config.max_positions));
      continue;
    }
    try {
      ShapeReport report = run_shape(bench, shape);
      results.push_back(std::move(report.json));
      if (is_text) write_out(report.text);
    } catch (const OutOfMemory& error) {
      if (shapes.size() == 1) throw;
      leave_out(error.what());
    }
  }
  if (results.empty()) throw Error("bench e2e: no shape of the workload fits the model");
}

void run(const BenchE2eOptions& options) {
  const E2eWorkload workload = find_workload(options);
  check_look(options, workload);
  Bench bench{.options = options,
              .subject = find_subject(options.subject, options.model.draft),
              .workload = workload.name};
  const Subject& subject = bench.subject;
  bench.base = engine_options(options.model, subject.config);
  const bool is_text = options.json != "-";
  std::optional<bench::ResultFile> file;
  if (is_text && !options.json.empty()) file.emplace(options.json);
  if (!options.profile.empty()) bench.profile.emplace(options.profile);
  const Device device = bench.base.device;
  if (options.looks_at_steps() && !device.is_cpu()) bench.tracer = bench::make_device_tracer();
  bench.ceilings = find_ceilings(options, device);
  Json report = {{"cpu", bench::cpu_name()},
                 {"simd", bench::simd_name()},
                 {"threads", num_threads()},
                 {"device", show_device(device)},
                 {"commit", kCommit},
                 {"date", bench::current_date()},
                 {"model", subject.name},
                 {"parameters", subject.config.num_parameters()},
                 {"random_weights", subject.folder.empty()},
                 {"dtype", options.model.dtype},
                 {"weights", options.model.weights},
                 {"activations", options.model.activations},
                 {"kv", options.model.kv},
                 {"read_tbs", rounded(bench.ceilings.read_tbs)},
                 {"results", Json::array()}};
  if (is_text) {
    write_out(concat(shown(subject.name), ", ", show_count(subject.config.num_parameters()),
                     " parameters, ", options.model.dtype, ", weights ", options.model.weights,
                     ", kv ", options.model.kv, "; on ", show_device(device), "; ",
                     bench::cpu_name(), ", ", num_threads(), " threads, ", bench::simd_name(),
                     ", commit ", kCommit, "\n"));
  }
  run_shapes(bench, workload.shapes, is_text, report["results"]);
  if (file) file->write(json_text(report));
  if (!is_text) write_out(json_text(report));
}

}  // namespace

void add_bench_e2e(CLI::App& bench, int&) {
  const auto options = std::make_shared<BenchE2eOptions>();
  Verb verb(bench, "e2e", "Times a whole model: prefill, decode and memory");
  verb.positional("WORKLOAD", options->workload,
                  "e2e/single (the default), locked, batch64, prefill, context, or pp512+tg128");
  FlagSet flags(verb, "What is timed");
  flags.value("--model", options->subject.folder, "FOLDER",
              "A model's folder; the bundled one if absent");
  flags.value("--shape", options->subject.shape, "NAME",
              "Random weights in a known shape, such as llama3-8b, instead of --model");
  flags.value("--draft-shape", options->subject.draft_shape, "NAME",
              "The same for the draft model of --speculate draft");
  flags.toggle("--repeating", options->subject.is_repeating,
               "Weights that make the text repeat itself, for --speculate; needs --shape");
  flags.toggle("--constrained", options->is_constrained,
               "Also with every sequence held to a JSON schema: what masks cost");
  flags.quantity("--batch", options->batch, "N", "Sequences at once; 1 if absent");
  flags.quantity("--prompt", options->prompt, "N", "Tokens of a prompt; 512 if absent");
  flags.quantity("--generate", options->generate, "N", "Tokens to generate; 128 if absent");
  flags.ranged("--repeat", options->repeat, 1, 1000, "N", "Timed passes");
  flags.ranged("--warmup", options->warmup, 0, 1000, "N", "Passes before them");
  flags.value("--json", options->json, "FILE", "Write the results to this file; - prints them");
  FlagSet look(verb, "Where the time goes");
  look.toggle("--explain", options->has_explain,
              "Table of a step: each operation's bytes, floor, time, gap; on GPUs by CUPTI");
  look.value("--profile", options->profile, "FILE",
             "Trace some steps, host and device, for ui.perfetto.dev");
  look.value("--bandwidth", options->bandwidth_tbs, "TB/S",
             "Of the memory, for floors; measured if absent");
  add_model_flags(verb, options->model);
  verb.on_run([options] { run(*options); });
}

}  // namespace tessera::apps
