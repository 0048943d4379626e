// `tessera perplexity`: how well a model predicts a text.
// SPDX-License-Identifier: MIT
#include "apps/perplexity.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/text_file.h"
#include "apps/verbs.h"
#include "bench/report.h"
#include "core/build_info.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/validate.h"

namespace tessera::apps {

std::string drop_separators(std::string_view text) {
  constexpr std::string_view kSeparator = "<|endoftext|>";
  std::string kept;
  kept.reserve(text.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const size_t next = std::min(end + 1, text.size());
    if (text.substr(0, end) != kSeparator) kept += text.substr(0, next);
    text.remove_prefix(next);
  }
  return kept;
}

std::vector<ScoreJob> cut_windows(std::span<const int32_t> tokens,
                                  const std::vector<int32_t>& prefix, int64_t window) {
  const auto num_prefix = static_cast<int64_t>(prefix.size());
  const int64_t num_taken = window - num_prefix;
  // One token to predict, and at least one before it.
  const int64_t least = std::max<int64_t>(2, num_prefix + 1);
  if (window < least) {
    throw UsageError(concat("--window is ", window, "; it must be at least ", least));
  }
  std::vector<ScoreJob> windows;
  for (size_t begin = 0; begin + static_cast<size_t>(num_taken) <= tokens.size();
       begin += static_cast<size_t>(num_taken)) {
    ScoreJob job = {.tokens = prefix, .num_scored = num_prefix > 0 ? num_taken : num_taken - 1};
    const auto part = tokens.subspan(begin, static_cast<size_t>(num_taken));
    job.tokens.insert(job.tokens.end(), part.begin(), part.end());
    windows.push_back(std::move(job));
  }
  return windows;
}

namespace {

struct PerplexityOptions {
  ModelOptions model;
  std::string folder;
  std::string text;
  int64_t window = 1024;
  int64_t limit = 0;
  bool is_json = false;
};

struct PerplexityResult {
  int64_t num_windows = 0;
  int64_t num_tokens = 0;
  double nll = 0;  // per token, natural logarithm
  double seconds = 0;

  double perplexity() const { return std::exp(nll); }
  double rate() const { return static_cast<double>(num_tokens) / seconds; }
};

PerplexityResult measure(Engine& engine, const std::vector<ScoreJob>& windows) {
  Progress progress("perplexity");
  const auto start = std::chrono::steady_clock::now();
  std::vector<double> sums(windows.size());  // added in order, so that the result is reproducible
  double sum_so_far = 0;
  int64_t tokens_so_far = 0;
  int64_t num_done = 0;
  score(
      engine, static_cast<int64_t>(windows.size()),
      [&](int64_t index) { return windows[static_cast<size_t>(index)]; },
      [&](int64_t index, double logprob) {
        sums[static_cast<size_t>(index)] = logprob;
        sum_so_far += logprob;
        tokens_so_far += windows[static_cast<size_t>(index)].num_scored;
        progress.show(
            ++num_done, static_cast<int64_t>(windows.size()),
            "ppl " + fixed(std::exp(-sum_so_far / static_cast<double>(tokens_so_far)), 3));
      });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return {
      .num_windows = static_cast<int64_t>(windows.size()),
      .num_tokens = tokens_so_far,
      .nll = -std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(tokens_so_far),
      .seconds = took.count()};
}

void print(const PerplexityResult& result, const PerplexityOptions& options,
           const std::string& folder, Device device) {
  if (!options.is_json) {
    write_out(concat("perplexity ", fixed(result.perplexity(), 4), ", nll ", fixed(result.nll, 6),
                     " over ", show_count(result.num_tokens), " tokens in ", result.num_windows,
                     " windows, ", show_rate(result.rate()), "\n"));
    return;
  }
  const nlohmann::ordered_json json = {{"model", folder},
                                       {"text", options.text},
                                       {"dtype", options.model.dtype},
                                       {"weights", options.model.weights},
                                       {"kv", options.model.kv},
                                       {"device", show_device(device)},
                                       {"window", options.window},
                                       {"windows", result.num_windows},
                                       {"tokens", result.num_tokens},
                                       {"nll", result.nll},
                                       {"ppl", result.perplexity()},
                                       {"seconds", rounded(result.seconds)},
                                       {"tokens_per_second", rounded(result.rate())},
                                       {"cpu", bench::cpu_name()},
                                       {"threads", num_threads()},
                                       {"commit", kCommit},
                                       {"date", bench::current_date()}};
  write_out(json_text(json));
}

void run(const PerplexityOptions& options) {
  if (options.text.empty()) throw UsageError("no text was given; name a file with --text FILE");
  const std::filesystem::path folder = find_model(options.folder);
  const std::string text = drop_separators(read_text_file(options.text));
  const model::ModelConfig config = model::load_config(folder);
  EngineOptions flags = scoring_options(engine_options(options.model, config));
  flags.use_prefix_cache = false;  // windows share no prefix
  flags = as_usage([&] { return engine::fill_options(flags, config); });
  if (options.window > flags.max_context) {
    throw UsageError(concat("--window is ", options.window, "; this model's context takes at most ",
                            flags.max_context));
  }
  engine::OpenModel opened = engine::open_model(folder, config, flags);
  const std::vector<int32_t> tokens = opened.tokenizer.encode(text);
  std::vector<ScoreJob> windows = cut_windows(tokens, opened.tokenizer.prefix(), options.window);
  if (windows.empty()) {
    throw Error(concat(options.text, " has ", tokens.size(), " tokens, which fill no window of ",
                       options.window, "; give a longer text or a smaller --window"));
  }
  if (options.limit > 0 && options.limit < static_cast<int64_t>(windows.size())) {
    windows.resize(static_cast<size_t>(options.limit));
  }
  const std::unique_ptr<Engine> engine = load_engine(std::move(opened));
  print(measure(*engine, windows), options, folder.string(), engine->device());
}

}  // namespace

void add_perplexity(CLI::App& app, int&) {
  const auto options = std::make_shared<PerplexityOptions>();
  Verb verb(app, "perplexity", "Measures how well a model predicts a text");
  verb.positional("MODEL", options->folder,
                  "A model's folder; the bundled model, or TESSERA_MODEL, if absent");
  FlagSet flags(verb, "Text and output");
  flags.value("--text", options->text, "FILE", "The text; .bz2, .xz and .gz are unpacked");
  flags.quantity("--window", options->window, "N",
                 "Tokens of a window, its begin-of-text token included");
  flags.quantity("--limit", options->limit, "N", "Only the first N windows");
  flags.toggle("--json", options->is_json, "One JSON object instead of a line");
  add_model_flags(verb, options->model);
  verb.on_run([options] { run(*options); });
}

}  // namespace tessera::apps
