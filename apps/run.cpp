// `tessera run`: a prompt answered, or a conversation on a terminal.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/chat.h"
#include "apps/generate.h"
#include "apps/json_text.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/run_options.h"
#include "apps/text_file.h"
#include "apps/verbs.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/validate.h"
#include "tessera/core/memory_use.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kInterrupted = 130;  // 128 + SIGINT, the shell convention
// One byte for every token of the longest possible context.
constexpr size_t kMaxPromptBytes = model::kMaxPositions;

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  ConstraintOptions constraint;
  std::vector<std::string> positionals;
  std::string prompt;
  bool has_prompt = false;  // the prompt may be empty
  std::string system;
  int chat = 0;  // 1: --chat, -1: --no-chat, 0: if the model has a template
  bool has_special = false;
  bool is_json = false;
  bool is_verbose = false;
};

Json output_json(const SequenceOutput& output, const Request& request) {
  Json json;
  json["text"] = output.text;
  Json tokens = Json::array();
  for (const OutputToken& token : output.tokens) tokens.push_back(token.token);
  json["tokens"] = std::move(tokens);
  json["finish"] = name(output.finish);
  if (request.beam_width > 0) json["score"] = output.score;
  if (request.num_logprobs >= 0) {
    Json list = Json::array();
    for (const OutputToken& token : output.tokens) {
      Json top = Json::array();
      for (const TokenLogprob& one : token.top) top.push_back({one.token, one.logprob});
      list.push_back({{"token", token.token}, {"logprob", token.logprob}, {"top", std::move(top)}});
    }
    json["logprobs"] = std::move(list);
  }
  return json;
}

Json speeds_json(const Speeds& speeds) {
  return {{"prompt_tokens", speeds.num_prompt_tokens},
          {"cached_tokens", speeds.num_cached_tokens},
          {"generated_tokens", speeds.num_generated_tokens},
          {"prefill_tokens_per_second", rounded(speeds.prefill_rate())},
          {"decode_tokens_per_second", rounded(speeds.decode_rate())},
          {"first_token_ms", rounded(speeds.first_token_seconds * 1e3)}};
}

// The fields of the first output are at the top level, and "outputs" lists all if there are
// several.
std::string report_json(const Generation& made, const Request& request, const Engine& engine,
                        const std::string& model, const RunOptions& options) {
  const EngineMetrics metrics = engine.metrics();
  Json json = {{"model", model},
               {"dtype", options.model.dtype},
               {"weights", options.model.weights},
               {"kv", options.model.kv},
               {"device", to_string(engine.device())},
               {"threads", num_threads()}};
  json.update(output_json(made.outputs.front(), request));
  if (made.outputs.size() > 1) {
    Json all = Json::array();
    for (const SequenceOutput& output : made.outputs) all.push_back(output_json(output, request));
    json["outputs"] = std::move(all);
  }
  json["speeds"] = speeds_json(made.speeds);
  json["drafts"] = {{"drafted_tokens", metrics.num_drafted_tokens},
                    {"accepted_tokens", metrics.num_accepted_tokens}};
  json["memory"] = {{"weight_bytes", metrics.weight_bytes},
                    {"kv_bytes", metrics.kv_bytes},
                    {"activation_bytes", metrics.activation_bytes},
                    {"peak_device_bytes", metrics.peak_device_bytes},
                    {"peak_resident_bytes", metrics.peak_host_bytes}};
  return json_text(json, -1);
}

// "[memory: weights 16.1 GB, KV cache 1.1 GB, activations 0.2 GB; ...]".
std::string memory_note(const Engine& engine) {
  const EngineMetrics metrics = engine.metrics();
  std::string text = concat("[memory: weights ", show_bytes(metrics.weight_bytes), ", KV cache ",
                            show_bytes(metrics.kv_bytes), ", activations ",
                            show_bytes(metrics.activation_bytes), "; peak allocated on ",
                            to_string(engine.device()), " ", show_bytes(metrics.peak_device_bytes));
  if (!engine.device().is_cpu()) {
    text +=
        concat(", in use by the driver's count ", show_bytes(used_device_bytes(engine.device())));
  }
  return text +
         concat("; peak of the process on the host ", show_bytes(metrics.peak_host_bytes), "]\n");
}

// "[drafts: 93 of 105 tokens accepted, 2.4 tokens a step; draft model: 60 steps, weights 26.4 MB,
// KV cache 4.7 MB]"; nothing if there were none.
std::string draft_note(const EngineMetrics& metrics) {
  std::string text;
  if (metrics.has_given_up_drafts) text += "[drafts: the draft model failed and was given up]\n";
  if (metrics.num_drafted_tokens == 0) return text;
  text += concat("[drafts: ", metrics.num_accepted_tokens, " of ", metrics.num_drafted_tokens,
                 " tokens accepted, ", fixed(tokens_per_step(metrics), 1), " tokens a step");
  if (metrics.draft_weight_bytes > 0) {
    text += concat("; draft model: ", metrics.num_draft_steps, " steps, weights ",
                   show_bytes(metrics.draft_weight_bytes), ", KV cache ",
                   show_bytes(metrics.draft_kv_bytes));
  }
  return text + "]\n";
}

// "[constraint: 20 masks of 1.9 us]"; nothing if there was none.
std::string constraint_note(const EngineMetrics& metrics) {
  if (metrics.num_masks == 0) return {};
  const double mean = 1e6 * metrics.mask_seconds / static_cast<double>(metrics.num_masks);
  return concat("[constraint: ", metrics.num_masks, " masks of ", rounded(mean), " us]\n");
}

int answer(Engine& engine, Request request, const RunOptions& options, const std::string& model) {
  InterruptGuard interrupt;
  const bool is_streamed = !options.is_json && request.num_outputs == 1;
  const auto print = [&](std::string_view text) {
    if (is_streamed) write_out(text);
  };
  const Request kept = request;
  const auto tell_first = [&](double seconds) {
    if (options.is_verbose) write_note(show_phase({.name = "first token", .seconds = seconds}));
  };
  const Generation made = generate(
      engine, std::move(request), print, [&] { return interrupt.is_raised(); }, tell_first);
  if (options.is_json) {
    write_out(report_json(made, kept, engine, model, options));
  } else if (is_streamed) {
    if (!made.outputs.front().text.ends_with('\n')) write_out("\n");
  } else {
    for (size_t i = 0; i < made.outputs.size(); ++i) {
      write_out(concat("[", i + 1, "] ", made.outputs[i].text, "\n"));
    }
  }
  if (!options.is_json) write_note(concat("[", show(made.speeds), "]\n"));
  if (options.is_verbose) {
    write_note(draft_note(engine.metrics()) + constraint_note(engine.metrics()) +
               memory_note(engine));
  }
  return interrupt.is_raised() ? kInterrupted : 0;
}

std::vector<int32_t> make_prompt(const PromptMaker& prompts, const RunOptions& options,
                                 const std::string& text, bool is_chat) {
  if (!is_chat) return as_usage([&] { return prompts.continuation(text, options.has_special); });
  as_usage([&] { prompts.check_covered(text); });
  Conversation conversation(options.system);
  conversation.ask(text);
  return prompts.chat(conversation.messages());
}

// Sized for this one request.
EngineOptions engine_options_of(const RunOptions& options, const Request& request,
                                const model::ModelConfig& config) {
  EngineOptions made = engine_options(options.model, config);
  made.max_batch = std::clamp(std::max(request.num_outputs, request.beam_width), 1,
                              std::max(engine::kMaxOutputs, engine::kMaxBeams));
  add_draft_rows(made);
  return as_usage([&] {
    EngineOptions filled = engine::fill_options(made, config);
    engine::check_settings(request,
                           engine::capacity_of(filled, config.vocab, /*has_tokenizer=*/true));
    return filled;
  });
}

int run(const RunOptions& options) {
  RunArguments arguments = read_run_arguments(options.positionals);
  if (options.has_prompt) {
    if (arguments.prompt) throw UsageError("a PROMPT and --prompt were given; give one of them");
    arguments.prompt = options.prompt;
  }
  Request request = make_request(options.sampling);
  request.constraint = make_constraint(options.constraint);
  const std::filesystem::path folder = find_model(arguments.model);
  const bool is_interactive = !arguments.prompt && is_in_terminal();
  if (is_interactive && options.is_json) {
    throw UsageError("--json needs a prompt: give it after the model, or pipe it in");
  }
  engine::EarlyStart early = start_early(options.model, folder);
  const model::ModelConfig config = model::load_config(folder);
  EngineOptions engine_flags = engine_options_of(options, request, config);
  if (options.is_verbose) {
    engine_flags.on_phase = [](const LoadPhase& phase) { write_note(show_phase(phase)); };
  }
  if (!arguments.prompt && !is_interactive) arguments.prompt = read_input(kMaxPromptBytes);

  engine::OpenModel opened = engine::open_model(folder, config, engine_flags, std::move(early));
  bool is_chat = options.chat > 0;
  {
    const PromptMaker prompts(opened.tokenizer, engine::read_chat_settings(folder));
    if (options.chat == 0) is_chat = prompts.has_template() || !options.system.empty();
    if (is_chat && !prompts.has_template()) {
      throw UsageError(
          "the model has no chat template; leave out --chat and --system to continue plain text");
    }
    if (!is_interactive) {
      request.prompt = make_prompt(prompts, options, *arguments.prompt, is_chat);
      fit_to_context(request, opened.options.max_context);
    }
  }
  const std::unique_ptr<Engine> engine = load_engine(std::move(opened));
  if (!is_interactive) return answer(*engine, std::move(request), options, folder.string());
  run_chat(*engine, PromptMaker(*engine->tokenizer(), engine::read_chat_settings(folder)),
           {.request = std::move(request),
            .system = options.system,
            .uses_template = is_chat,
            .has_special = options.has_special});
  return 0;
}

}  // namespace

void add_run(CLI::App& app, int& exit_status) {
  const auto options = std::make_shared<RunOptions>();
  Verb verb(app, "run", "Answers a prompt, or chats on a terminal");
  // The help page names two positionals; they are read together, as a single one may be either.
  verb.positional("MODEL", "A model's folder; the bundled model, or TESSERA_MODEL, if absent");
  verb.positional("PROMPT", "The text to answer; read from standard input if absent");
  FlagSet input(verb, "Input and output");
  input.value("-p,--prompt", options->prompt, "TEXT", "The prompt, for the default model");
  input.value("--system", options->system, "TEXT", "What the model is told before a chat");
  input.toggle("--chat,!--no-chat", options->chat,
               "Use the chat template, or not; the default is to where there is one");
  input.toggle("--special", options->has_special, "Control tokens in the prompt count as such");
  input.toggle("--json", options->is_json, "One JSON object instead of text");
  add_sampling_flags(verb, options->sampling);
  add_constraint_flags(verb, options->constraint);
  add_model_flags(verb, options->model);
  verb.on_run([options, verb, &exit_status] {
    for (const char* place : {"MODEL", "PROMPT"}) {
      if (auto word = verb.given(place)) options->positionals.push_back(std::move(*word));
    }
    options->has_prompt = verb.given("--prompt").has_value();
    options->is_verbose = verb.is_verbose();
    exit_status = run(*options);
  });
}

}  // namespace tessera::apps
