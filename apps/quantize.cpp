// `tessera quantize`: a checkpoint with codes for weights.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/perplexity.h"
#include "apps/text_file.h"
#include "apps/verbs.h"
#include "bench/report.h"
#include "core/build_info.h"
#include "core/parallel.h"
#include "core/text.h"
#include "model/config.h"
#include "tessera/core/memory_use.h"
#include "tessera/quant/quantize_model.h"
#include "tessera/text/tokenizer.h"

namespace tessera::apps {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct QuantizeOptions {
  std::string folder;
  std::string out;
  std::string method = "gptq";
  std::string weights = "int4";
  std::string activations = "plain";
  std::string order = "weight";
  std::string clip = "on";
  std::string format = "compressed-tensors";
  std::string keep;
  std::string calibration;
  std::string evaluate;
  std::string device = "auto";
  int64_t group = 128;
  int64_t samples = 128;
  int64_t length = 2048;
  int64_t window = 1024;
  int64_t limit = 0;
  int64_t threads = 0;
  double damping = 0.01;
  double alpha = 0.5;
  bool is_symmetric = false;
  bool calibrates_kv = false;
  bool measures_after_only = false;
  bool is_json = false;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

quant::ActOrder order_of(const std::string& text) {
  if (text == "group") return quant::ActOrder::group;
  return text == "weight" ? quant::ActOrder::weight : quant::ActOrder::none;
}

quant::ModelQuantOptions options_of(const QuantizeOptions& given) {
  quant::ModelQuantOptions options;
  options.method = *quant::find_method(given.method);
  options.format = {.codes = *quant::find_code_format(given.weights),
                    .group = given.group,
                    .is_symmetric = given.is_symmetric};
  options.files = *quant::find_file_format(given.format);
  options.gptq = {
      .damping = given.damping, .order = order_of(given.order), .search_clip = given.clip == "on"};
  options.search_clip = given.clip == "on";
  options.alpha = given.alpha;
  options.quantizes_inputs =
      given.activations != "plain" || options.method == quant::Method::smoothquant;
  options.has_static_inputs = given.activations == "static";
  options.calibrates_kv = given.calibrates_kv;
  if (given.device != "auto") {
    options.device = parse_device(given.device);
  } else if (num_cuda_devices() > 0) {
    options.device = cuda_device();
  }
  options.keep = split(given.keep);
  return options;
}

// The text a run is calibrated with: the one given, or the bundled one.
fs::path calibration_file(const QuantizeOptions& given) {
  if (!given.calibration.empty()) return given.calibration;
  const fs::path bundled = bundled_model() / "calibration.txt";
  if (fs::exists(bundled)) return bundled;
  throw UsageError("the bundled calibration text was not found; name a file with --calibration");
}

// Windows of the text, each with the model's prefix, as many as are wanted and there.
std::vector<std::vector<int32_t>> samples_of(const QuantizeOptions& given,
                                             const Tokenizer& tokenizer, int64_t max_positions) {
  const fs::path file = calibration_file(given);
  const std::vector<int32_t> tokens = tokenizer.encode(drop_separators(read_text_file(file)));
  const int64_t length = std::min(given.length, max_positions);
  std::vector<std::vector<int32_t>> samples;
  for (ScoreJob& window : cut_windows(tokens, tokenizer.prefix(), length)) {
    if (std::ssize(samples) == given.samples) break;
    samples.push_back(std::move(window.tokens));
  }
  if (samples.empty()) {
    throw Error(concat(shown_path(file.native()), " has ", tokens.size(),
                       " tokens, which fill no sample of ", length, "; give a longer --calibration",
                       " or a smaller --length"));
  }
  return samples;
}

std::vector<std::vector<int32_t>> windows_of(const QuantizeOptions& given,
                                             const Tokenizer& tokenizer) {
  const std::string text = drop_separators(read_text_file(given.evaluate));
  std::vector<std::vector<int32_t>> windows;
  for (ScoreJob& window : cut_windows(tokenizer.encode(text), tokenizer.prefix(), given.window)) {
    if (given.limit > 0 && std::ssize(windows) == given.limit) break;
    windows.push_back(std::move(window.tokens));
  }
  if (windows.empty()) {
    throw Error(concat(given.evaluate, " fills no window of ", given.window, " tokens"));
  }
  return windows;
}

quant::Likelihood measure(std::string what, const fs::path& folder,
                          const std::vector<std::vector<int32_t>>& windows) {
  Progress progress(std::move(what));
  int64_t num_done = 0;
  return quant::measure_likelihood(folder, windows, [&](int64_t, double nll) {
    progress.show(++num_done, std::ssize(windows), "ppl " + fixed(std::exp(nll), 3));
  });
}

void print_lines(const quant::ModelQuantReport& report, Device device, double seconds) {
  std::string text;
  for (const quant::LinearReport& one : report.layers) {
    text += concat(one.name, ": weight error ", fixed(100 * one.weight_error, 2), " %");
    if (one.output_error > 0) {
      text += concat(", output error ", fixed(100 * one.output_error, 2), " %");
    }
    text += "\n";
  }
  text += concat(show_bytes(report.bytes_before), " before, ", show_bytes(report.bytes_after),
                 " after, ", fixed(seconds, 1), " s");
  if (report.num_resumed > 0) {
    text += concat(", ", report.num_resumed, " layers were there already");
  }
  std::string_view comma = "\n";
  for (const quant::QuantizeTime& time : report.times) {
    if (time.seconds < 0.05) continue;
    text += concat(comma, time.part, " ", fixed(time.seconds, 1), " s");
    comma = ", ";
  }
  text += concat("\npeak allocated on ", to_string(device), " ",
                 show_bytes(allocated_bytes(device).peak), ", peak of the process on the host ",
                 show_bytes(peak_host_bytes()));
  write_out(text + "\n");
}

Json report_json(const quant::ModelQuantReport& report, const QuantizeOptions& given,
                 const fs::path& folder, Device device, double seconds) {
  Json layers = Json::array();
  for (const quant::LinearReport& one : report.layers) {
    layers.push_back({{"name", one.name},
                      {"weight_error", rounded(one.weight_error)},
                      {"output_error", rounded(one.output_error)}});
  }
  Json times = Json::object();
  for (const quant::QuantizeTime& time : report.times) times[time.part] = rounded(time.seconds);
  return {{"model", folder.string()},
          {"method", given.method},
          {"weights", given.weights},
          {"activations", given.activations},
          {"group", given.group},
          {"symmetric", given.is_symmetric},
          {"act_order", given.order},
          {"clip", given.clip},
          {"format", given.format},
          {"kv_scales", given.calibrates_kv},
          {"bytes_before", report.bytes_before},
          {"bytes_after", report.bytes_after},
          {"seconds", rounded(seconds)},
          {"seconds_by_part", times},
          {"device", show_device(device)},
          {"peak_device_bytes", allocated_bytes(device).peak},
          {"peak_resident_bytes", peak_host_bytes()},
          {"layers", layers}};
}

void run(const QuantizeOptions& given) {
  if (given.out.empty()) throw UsageError("no folder for the result was given: MODEL OUT");
  use_threads(given.threads);
  const fs::path folder = find_model(given.folder);
  quant::ModelQuantOptions options = options_of(given);
  const Tokenizer tokenizer = Tokenizer::load(folder / "tokenizer.json");
  std::vector<std::vector<int32_t>> windows;
  if (!given.evaluate.empty()) windows = windows_of(given, tokenizer);
  const bool is_calibrated =
      options.method != quant::Method::rtn || options.has_static_inputs || options.calibrates_kv;
  if (!is_calibrated) options.device = cpu_device();
  if (is_calibrated) {
    options.samples = samples_of(given, tokenizer, model::load_config(folder).max_positions);
    write_note(concat("calibrating with ", options.samples.size(), " samples of ",
                      options.samples.front().size(), " tokens\n"));
  }
  const auto start = std::chrono::steady_clock::now();
  quant::ModelQuantReport report;
  {
    Progress progress("quantising");
    options.on_progress = [&](const quant::QuantizeProgress& now) {
      progress.show(now.num_done, now.num_layers, now.note);
    };
    report = quant::quantize_model(folder, given.out, options);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  Json json = report_json(report, given, folder, options.device, took.count());
  if (!given.is_json) print_lines(report, options.device, took.count());
  if (!windows.empty()) {
    quant::Likelihood before;
    if (!given.measures_after_only) before = measure("before", folder, windows);
    const quant::Likelihood after = measure("after", given.out, windows);
    json["evaluate"] = {{"text", fs::path(given.evaluate).filename().string()},
                        {"tokens", after.num_tokens},
                        {"ppl_after", std::exp(after.nll)}};
    if (!given.measures_after_only) json["evaluate"]["ppl_before"] = std::exp(before.nll);
    if (!given.is_json) {
      const std::string first = given.measures_after_only
                                    ? std::string()
                                    : concat(fixed(std::exp(before.nll), 4), " before, ");
      write_out(concat("perplexity ", first, fixed(std::exp(after.nll), 4), " after, over ",
                       show_count(after.num_tokens), " tokens\n"));
    }
  }
  if (!given.is_json) return;
  json["cpu"] = bench::cpu_name();
  json["threads"] = num_threads();
  json["commit"] = kCommit;
  json["date"] = bench::current_date();
  write_out(json_text(json));
}

}  // namespace

void add_quantize(CLI::App& app, int&) {
  const auto options = std::make_shared<QuantizeOptions>();
  Verb verb(app, "quantize", "Writes a checkpoint with quantised weights");
  verb.positional("MODEL", options->folder, "A model's folder");
  verb.positional("OUT", options->out,
                  "The folder to write; one that a stopped run left is taken up");
  FlagSet method(verb, "Method");
  method.choice("--method", options->method, {"rtn", "gptq", "awq", "smoothquant"},
                "How codes are chosen");
  method.choice("--weights", options->weights, {"int4", "int8", "fp8", "fp8_block"}, "The codes");
  method.choice("--activations", options->activations, {"plain", "dynamic", "static"},
                "Inputs of 8 bits too: scaled by token, or by one calibrated scale for a layer; "
                "with smoothquant dynamic is the least");
  method.value("--group", options->group, "N", "int4: weights that share a scale; 0: a whole row");
  method.toggle("--symmetric", options->is_symmetric, "int4: without zero points");
  method.choice("--act-order", options->order, {"off", "weight", "group"},
                "gptq: columns with large inputs first; groups by weight, or in that order");
  method.value("--keep", options->keep, "NAMES",
               "Tensors to leave as they are: parts of names, with commas");
  method.toggle("--kv", options->calibrates_kv,
                "Calibrate scales of keys and values for --kv e4m3");
  FlagSet data(verb, "Calibration and evaluation");
  data.value("--calibration", options->calibration, "FILE", "A text; the bundled one if absent");
  data.quantity("--samples", options->samples, "N", "Windows of that text, at most");
  data.quantity("--length", options->length, "N", "Tokens of a window");
  data.value("--evaluate", options->evaluate, "FILE",
             "Measure perplexity on this text before and after, in float");
  FlagSet output(verb, "Output");
  output.choice("--format", options->format, {"compressed-tensors", "gptq", "dense"},
                "Of the files; dense: dequantised, in f32");
  output.toggle("--json", options->is_json, "One JSON object instead of lines");
  FlagSet more(verb, std::string(kAdvanced));
  more.choice("--clip", options->clip, {"on", "off"},
              "gptq, awq: search scales below those of the whole range");
  more.value("--damping", options->damping, "X", "gptq: share of the mean diagonal");
  more.value("--alpha", options->alpha, "X", "smoothquant: 0 to 1, how much moves to weights");
  more.quantity("--window", options->window, "N", "Tokens of a window of --evaluate");
  more.quantity("--limit", options->limit, "N", "Only the first N windows of --evaluate");
  more.toggle("--after-only", options->measures_after_only,
              "Measure --evaluate on the result alone");
  more.value("--device", options->device, "DEVICE",
             "Where samples run through the layers: auto, cpu, cuda or cuda:N");
  more.quantity("--threads", options->threads, "N", "CPU threads; 0: all");
  verb.on_run([options] { run(*options); });
}

}  // namespace tessera::apps
