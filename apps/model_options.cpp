// Model flags to EngineOptions, model folders, and the table of fields and flags.
// SPDX-License-Identifier: MIT
#include "apps/model_options.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/machine.h"
#include "apps/options.h"
#include "apps/output.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/make_engine.h"
#include "model/formats/stored_format.h"
#include "model/gguf/gguf.h"

namespace tessera::apps {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBundled = "models/tessera-13m";
constexpr int64_t kMaxThreads = 1024;

bool is_model(const fs::path& folder) {
  std::error_code ignored;
  if (model::is_gguf(folder)) return true;
  return fs::exists(folder / "config.json", ignored);
}

}  // namespace

void add_model_flags(const Verb& verb, ModelOptions& options) {
  FlagSet model(verb, "Model");
  model.choice("--dtype", options.dtype, {"f32", "bf16", "f16"}, "Of weights and activations");
  std::vector<std::string> weights;
  for (const WeightFormatName& one : kWeightFormats) weights.emplace_back(one.name);
  model.choice("--weights", options.weights, std::move(weights),
               "Linear layers as stored, in --dtype (plain), or quantised while loading");
  std::vector<std::string> kv_types;
  for (const KvFormat type : kAllKvFormats) kv_types.emplace_back(name(type));
  model.choice("--kv", options.kv, std::move(kv_types), "How keys and values are kept");
  model.quantity("--threads", options.threads, "N", "CPU threads; all cores if absent");
  FlagSet more(verb, "Advanced model");
  more.value("--device", options.device, "auto|cpu|cuda:N",
             "Where the model runs; auto is the first GPU if it has all kernels for it");
  more.ranged("--group", options.group, 1, 65536, "N", "Inputs per scale of --weights int4");
  std::vector<std::string> activations;
  for (const ActivationFormatName& one : kActivationFormats) activations.emplace_back(one.name);
  more.choice("--activations", options.activations, std::move(activations),
              "What 8-bit weights multiply: values in --dtype (plain), or 8-bit codes made on the "
              "way in; auto: as the checkpoint asks, and codes on a GPU if --weights quantises");
  more.quantity("--context", options.context, "N",
                "Most tokens of a sequence; what the model was made for if absent");
  more.quantity("--kv-bytes", options.kv_bytes, "SIZE",
                "Memory for keys and values, such as 512M or 2G");
  more.toggle("--check-weights", options.check_weights, "Refuse weights with NaN or infinity");
  more.choice("--graphs", options.graphs, {"on", "off"},
              "Replay steps of generated tokens as CUDA graphs");
  more.choice("--fuse", options.fuse, {"on", "off"},
              "On Hopper: norms inside products and appends inside attention; same output");
  more.choice("--ahead", options.ahead, {"auto", "on", "off"},
              "Launch a step before the results of the one before are read; auto: on a GPU");
  more.choice("--speculate", options.speculate, {"off", "lookup", "draft"},
              "Guess tokens, from earlier text or with a draft model, and verify several in a "
              "step; same output");
  more.value("--draft", options.draft, "FOLDER",
             "The draft model: a small one with the same vocabulary");
  more.ranged("--draft-tokens", options.draft_tokens, 1, 63, "N", "Most tokens guessed at once");
  more.value("--step-timeout", options.step_timeout, "SECONDS",
             "Ends the process, with status 4, when a step takes longer; 0: never. 120 on a GPU "
             "and 0 on the CPU if absent");
}

DType parse_dtype(const std::string& text) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (text == name(dtype)) return dtype;
  }
  throw UsageError(concat("--dtype is '", text, "'; it may be f32, bf16 or f16"));
}

KvFormat parse_kv_type(const std::string& text) {
  if (const std::optional<KvFormat> type = find_kv_format(text)) return *type;
  std::string all;
  for (const KvFormat type : kAllKvFormats) all += concat(all.empty() ? "" : ", ", name(type));
  throw UsageError(concat("--kv is '", text, "'; it may be one of ", all));
}

Device parse_device(const std::string& text) {
  if (text == "cpu") return cpu_device();
  if (text == "cuda") return cuda_device();
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix)) {
    const std::optional<int64_t> index =
        parse_quantity(std::string_view(text).substr(kPrefix.size()));
    if (index && *index < 64) return cuda_device(static_cast<int>(*index));
  }
  throw UsageError(
      concat("--device is '", text, "'; it may be auto, cpu, or cuda:0 for the first GPU"));
}

void use_threads(int64_t threads) {
  if (threads > kMaxThreads) {
    throw UsageError(concat("--threads is ", threads, "; it may be 1 to ", kMaxThreads));
  }
  if (threads > 0) set_num_threads(static_cast<int>(threads));
}

EngineOptions engine_options(const ModelOptions& options, const model::ModelConfig& config) {
  use_threads(options.threads);
  EngineOptions made;
  made.field_names = flag_names();
  made.dtype = parse_dtype(options.dtype);
  made.weights = find_weight_format(options.weights).value_or(WeightFormat::stored);
  made.weight_group = options.group;
  made.activations =
      find_activation_format(options.activations).value_or(ActivationFormat::automatic);
  made.kv_type = parse_kv_type(options.kv);
  if (made.kv_type == KvFormat::int4) made.page_size = 32;  // whole groups of keys
  made.check_weights = options.check_weights;
  made.max_context = options.context;
  made.kv_bytes = options.kv_bytes;
  if (const double seconds = options.step_timeout.value_or(0); !(seconds >= 0 && seconds <= 1e6)) {
    throw UsageError(
        concat("--step-timeout is ", seconds, "; give 0 for no limit, or up to 1000000 seconds"));
  }
  made.step_timeout_s = options.step_timeout;
  made.use_graphs = options.graphs == "on";
  made.fuses_steps = options.fuse == "on";
  if (options.ahead != "auto") made.runs_ahead = options.ahead == "on";
  if (options.speculate == "lookup") made.speculation = Speculation::lookup;
  if (options.speculate == "draft") made.speculation = Speculation::draft;
  if (!options.draft.empty()) {
    if (options.speculate != "draft") {
      throw UsageError(concat("--draft is for --speculate draft, and --speculate is ",
                              options.speculate, "; give both or neither"));
    }
    made.draft_folder = find_model(options.draft);
  }
  made.max_draft_tokens = options.draft_tokens;
  if (config.formats != nullptr) {
    for (const std::string& note : config.formats->notes) {
      write_note(concat("tessera: ", note, "\n"));
    }
  }
  if (options.device == "auto") {
    const engine::DeviceChoice choice = engine::choose_device(config, made);
    made.device = choice.device;
    if (!choice.why_no_gpu.empty()) {
      write_note(concat("tessera: running on the CPU: ", choice.why_no_gpu, "\n"));
    }
  } else {
    made.device = parse_device(options.device);
    engine::check_device(config, made);
  }
  // Every step reads all weights. A GPU needs more tokens per step than a CPU to be busy.
  if (!made.device.is_cpu()) made.max_step_tokens = 2048;
  return made;
}

void add_draft_rows(EngineOptions& options) {
  if (options.speculation == Speculation::off) return;
  options.max_batch *= 1 + options.max_draft_tokens;
  options.max_step_tokens = std::max(options.max_step_tokens, options.max_batch);
}

fs::path bundled_model() {
  std::error_code ignored;
  std::vector<fs::path> places;
  const fs::path executable = fs::read_symlink("/proc/self/exe", ignored);
  // Installed as bin/tessera, built as build/<preset>/apps/tessera: look up to four folders up.
  fs::path above = executable.parent_path();
  for (int i = 0; i < 5 && !above.empty(); ++i) {
    places.push_back(above / kBundled);
    places.push_back(above / "share/tessera" / kBundled);
    if (above == above.parent_path()) break;
    above = above.parent_path();
  }
  places.push_back(fs::path(TESSERA_SOURCE_DIR) / kBundled);
  places.push_back(fs::current_path(ignored) / kBundled);
  for (const fs::path& place : places) {
    if (is_model(place)) return place;
  }
  return {};
}

fs::path find_model(const std::string& given) {
  const char* environment = std::getenv("TESSERA_MODEL");
  std::string named = given;
  std::string source = "no model";
  if (named.empty() && environment != nullptr && *environment != '\0') {
    named = environment;
    source = "TESSERA_MODEL names no model";
  }
  if (named.empty()) {
    const fs::path bundled = bundled_model();
    if (!bundled.empty()) return bundled;
    throw Error(concat("the bundled model ", kBundled, " was not found; give a model's folder"));
  }
  if (is_model(named)) return named;
  std::error_code ignored;
  if (!fs::exists(named, ignored)) {
    throw Error(concat(source, ": there is no '", shown_path(named),
                       "'; give the folder of a Hugging Face checkpoint"));
  }
  throw Error(concat(source, ": '", shown_path(named),
                     "' has no config.json; give the folder of a Hugging Face ",
                     " checkpoint, with config.json, tokenizer.json and safetensors in it"));
}

std::unique_ptr<Engine> load_engine(engine::OpenModel opened) {
  Progress progress("loading");
  opened.options.on_load = [&](int64_t done, int64_t total) { progress.show_bytes(done, total); };
  if (opened.options.on_phase) {
    opened.options.on_phase = [&,
                               report = std::move(opened.options.on_phase)](const LoadPhase& one) {
      progress.erase();
      report(one);
    };
  }
  return engine::load(std::move(opened));
}

std::string show_phase(const LoadPhase& phase) {
  std::string text = concat("[", fixed(program_seconds(), 3), " s] ", phase.name, ": ",
                            fixed(phase.seconds * 1e3, 1), " ms");
  if (phase.num_bytes > 0) {
    const double rate = static_cast<double>(phase.num_bytes) * 1e-9 / std::max(phase.seconds, 1e-9);
    text += concat(", ", show_bytes(phase.num_bytes), ", ", fixed(rate, 1), " GB/s");
  }
  if (!phase.note.empty()) text += concat(", ", phase.note);
  return text + "\n";
}

engine::EarlyStart start_early(const ModelOptions& options, const fs::path& folder) {
  use_threads(options.threads);
  engine::EarlyStart early;
  const Device device = options.device == "auto" ? cuda_device() : parse_device(options.device);
  // On the CPU the tokenizer is read in a moment, and further threads would take address space.
  if (device.is_cpu() || cuda_driver_version().empty()) return early;
  early.begin_device(device);
  early.begin_tokenizer(folder);
  return early;
}

namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::array kRows = {
    Row{"activations", "--activations"},
    Row{"beam_width", "--beam"},
    Row{"constraint", "--json-schema"},
    Row{"draft_folder", "--draft"},
    Row{"dtype", "--dtype"},
    Row{"frequency_penalty", "--frequency-penalty"},
    Row{"kv_bytes", "--kv-bytes"},
    Row{"kv_type", "--kv"},
    Row{"length_penalty", "--length-penalty"},
    Row{"logit_bias", "--logit-bias"},
    Row{"max_batch", "--batch"},
    Row{"max_context", "--context"},
    Row{"max_draft_tokens", "--draft-tokens"},
    Row{"max_new_tokens", "--max-tokens"},
    Row{"min_new_tokens", "--min-tokens"},
    Row{"min_p", "--min-p"},
    Row{"num_logprobs", "--logprobs"},
    Row{"num_outputs", "--num-outputs"},
    Row{"presence_penalty", "--presence-penalty"},
    Row{"prompt", "--prompt"},
    Row{"repetition_penalty", "--repetition-penalty"},
    Row{"speculation", "--speculate"},
    Row{"step_timeout_s", "--step-timeout"},
    Row{"stop", "--stop"},
    Row{"stop_tokens", "--stop-token"},
    Row{"temperature", "--temperature"},
    Row{"top_k", "--top-k"},
    Row{"top_p", "--top-p"},
    Row{"typical_p", "--typical-p"},
    Row{"weight_group", "--group"},
    Row{"weights", "--weights"},
};

}  // namespace

std::span<const Row> field_flags() { return kRows; }

FieldNames flag_names() {
  return {[](std::string_view field) {
    const auto found = std::ranges::find(kRows, field, &Row::first);
    return std::string(found == kRows.end() ? field : found->second);
  }};
}

}  // namespace tessera::apps
