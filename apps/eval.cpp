// `tessera eval`: multiple-choice tasks by log-likelihood.
// SPDX-License-Identifier: MIT
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/eval/accuracy.h"
#include "apps/eval/tasks.h"
#include "apps/json_text.h"
#include "apps/machine.h"
#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "bench/report.h"
#include "core/build_info.h"
#include "core/parallel.h"
#include "core/text.h"
#include "engine/validate.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;

struct EvalOptions {
  ModelOptions model;
  std::string task;
  std::string folder;
  std::string data;
  int64_t shots = -1;
  int64_t limit = 0;
  bool is_json = false;
};

struct EvalResult {
  Accuracy all;
  std::map<std::string, Accuracy> by_subject;
  double seconds = 0;
};

// The jobs of all questions in order, made on demand.
class JobList {
 public:
  JobList(const Tokenizer& tokenizer, const std::vector<Question>& questions, int64_t max_tokens)
      : tokenizer_(tokenizer), questions_(questions), max_tokens_(max_tokens) {
    for (size_t i = 0; i < questions.size(); ++i) {
      for (size_t c = 0; c < questions[i].choices.size(); ++c) places_.push_back({i, c});
    }
  }

  struct Place {
    size_t question;
    size_t choice;
  };
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  Place place(int64_t job) const { return places_[static_cast<size_t>(job)]; }

  // Must be called for 0, 1, 2, … in order.
  ScoreJob take(int64_t job) {
    if (next_.empty()) {
      const Question& question = questions_[place(job).question];
      const auto num_shots = static_cast<int64_t>(question.shots.size());
      for (ScoreJob& one : jobs_of(tokenizer_, question, num_shots, max_tokens_)) {
        next_.push_back(std::move(one));
      }
    }
    ScoreJob taken = std::move(next_.front());
    next_.pop_front();
    return taken;
  }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<Question>& questions_;
  int64_t max_tokens_;
  std::vector<Place> places_;
  std::deque<ScoreJob> next_;
};

EvalResult evaluate(Engine& engine, const std::vector<Question>& questions) {
  const auto start = std::chrono::steady_clock::now();
  Progress progress("evaluating");
  JobList jobs(*engine.tokenizer(), questions, engine.max_context());
  std::vector<std::vector<double>> scores(questions.size());
  std::vector<size_t> num_left(questions.size());
  for (size_t i = 0; i < questions.size(); ++i) {
    num_left[i] = questions[i].choices.size();
    scores[i].resize(num_left[i]);
  }
  EvalResult result;
  score(
      engine, jobs.size(), [&](int64_t job) { return jobs.take(job); },
      [&](int64_t job, double logprob) {
        const auto [i, c] = jobs.place(job);
        scores[i][c] = logprob;
        if (--num_left[i] > 0) return;
        const Choice choice = choose(questions[i], scores[i]);
        result.all.add(questions[i], choice);
        result.by_subject[questions[i].subject].add(questions[i], choice);
        progress.show(result.all.num_questions, static_cast<int64_t>(questions.size()),
                      "acc " + fixed(result.all.share(), 4));
      });
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Json accuracy_json(const Accuracy& accuracy) {
  return {{"questions", accuracy.num_questions},
          {"acc", accuracy.share()},
          {"acc_stderr", accuracy.standard_error(accuracy.share())},
          {"acc_norm", accuracy.share_by_bytes()},
          {"acc_norm_stderr", accuracy.standard_error(accuracy.share_by_bytes())}};
}

std::string line_of(std::string_view what, const Accuracy& accuracy) {
  return concat(what, ": acc ", fixed(accuracy.share(), 4), " +- ",
                fixed(accuracy.standard_error(accuracy.share()), 4), ", acc_norm ",
                fixed(accuracy.share_by_bytes(), 4), " +- ",
                fixed(accuracy.standard_error(accuracy.share_by_bytes()), 4), ", ",
                show_count(accuracy.num_questions), " questions\n");
}

void print(const EvalResult& result, const EvalOptions& options, const std::string& folder,
           int64_t num_shots, Device device) {
  if (!options.is_json) {
    if (result.by_subject.size() > 1) {
      for (const auto& [subject, accuracy] : result.by_subject)
        write_out(line_of(subject, accuracy));
    }
    write_out(line_of(options.task, result.all));
    return;
  }
  Json json = {{"task", options.task},
               {"model", folder},
               {"data", options.data},
               {"dtype", options.model.dtype},
               {"weights", options.model.weights},
               {"kv", options.model.kv},
               {"device", show_device(device)},
               {"shots", num_shots}};
  json.update(accuracy_json(result.all));
  if (result.by_subject.size() > 1) {
    for (const auto& [subject, accuracy] : result.by_subject) {
      json["subjects"][subject] = accuracy_json(accuracy);
    }
  }
  json["seconds"] = rounded(result.seconds);
  json["cpu"] = bench::cpu_name();
  json["threads"] = num_threads();
  json["commit"] = kCommit;
  json["date"] = bench::current_date();
  write_out(json_text(json));
}

void run(const EvalOptions& options) {
  if (options.task.empty()) throw UsageError("no task was given: hellaswag, arc or mmlu");
  if (options.data.empty()) {
    throw UsageError(concat("no data was given; name the task's file with --data ",
                            options.task == "mmlu" ? "FOLDER" : "FILE"));
  }
  std::vector<Question> questions = load_task(options.task, options.data, options.shots);
  if (options.limit > 0 && options.limit < static_cast<int64_t>(questions.size())) {
    questions.resize(static_cast<size_t>(options.limit));
  }
  const std::filesystem::path folder = find_model(options.folder);
  const model::ModelConfig config = model::load_config(folder);
  const EngineOptions flags = as_usage([&] {
    return engine::fill_options(scoring_options(engine_options(options.model, config)), config);
  });
  const std::unique_ptr<Engine> engine = load_engine(engine::open_model(folder, config, flags));
  const auto num_shots = static_cast<int64_t>(questions.front().shots.size());
  print(evaluate(*engine, questions), options, folder.string(), num_shots, engine->device());
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  const auto options = std::make_shared<EvalOptions>();
  Verb verb(app, "eval", "Runs HellaSwag, ARC or MMLU from files, by log-likelihood");
  verb.positional("TASK", options->task, "hellaswag, arc or mmlu");
  verb.positional("MODEL", options->folder,
                  "A model's folder; the bundled model, or TESSERA_MODEL, if absent");
  FlagSet flags(verb, "Data and output");
  flags.value("--data", options->data, "FILE",
              "hellaswag: six lines a question; arc: JSON lines with query, choices, gold; mmlu: "
              "the folder of dev/ and test/. .bz2, .xz and .gz are unpacked");
  flags.value("--shots", options->shots, "N",
              "Solved examples before each question; mmlu 5, others 0 if absent");
  flags.quantity("--limit", options->limit, "N", "Only the first N questions");
  flags.toggle("--json", options->is_json, "One JSON object instead of lines");
  add_model_flags(verb, options->model);
  verb.on_run([options] { run(*options); });
}

}  // namespace tessera::apps
