// A soak test of the engine: random requests for a given time, and nothing may leak.
//
//   tessera_soak [--seconds 600] [--seed 1] [--model FOLDER]
//
// Rounds of requests, cancels and refusals in a KV pool that is too small for them. After each,
// when the engine is idle, its pages, the process's descriptors and its memory must be where they
// were after the warm-up. Exits with 1, and a line for each thing that is wrong, otherwise.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "core/text.h"
#include "engine/engine_impl.h"
#include "tessera/core/error.h"
#include "tests/engine/soak/mixture.h"
#include "tests/engine/soak/process.h"

namespace tessera::soak {
namespace {

constexpr int64_t kMaxContext = 192;
constexpr int64_t kPoolContexts = 3;         // the requests would need a dozen
constexpr int64_t kAllowedGrowth = 8 << 20;  // bytes of resident memory, once warm
constexpr size_t kMaxShownFaults = 20;
constexpr int64_t kStepsToHaveSeenAll = 2'000;  // after which each kind of event must have happened

struct Settings {
  double seconds = 600;
  uint64_t seed = 1;
  std::string model = TESSERA_SOURCE_DIR "/models/tessera-13m";
};

struct Level {
  int64_t descriptors = 0;
  int64_t resident = 0;
};

class Soak {
 public:
  explicit Soak(const Settings& settings)
      : settings_(settings),
        dice_(settings.seed),
        loaded_(Engine::load(settings.model, options_for(settings.model))),
        engine_(dynamic_cast<engine::EngineImpl&>(*loaded_)),
        probes_(make_probes(*engine_.tokenizer())) {}

  int run() {
    for (size_t i = 0; i < probes_.size(); ++i) {
      answers_.emplace_back();
      add(probes_[i], i);
      drain();
    }
    const auto start = Clock::now();
    const auto elapsed = [&] {
      return std::chrono::duration<double>(Clock::now() - start).count();
    };
    const double round = std::clamp(settings_.seconds / 40, 2.0, 15.0);
    // Memory grows until every buffer has had its largest request, so the first rounds do not
    // count.
    const double warm = std::min(settings_.seconds / 4, 60.0);
    std::optional<Level> level;
    while (elapsed() < settings_.seconds && faults_.size() < kMaxShownFaults) {
      const double end = std::min(elapsed() + round, settings_.seconds);
      while (elapsed() < end && faults_.size() < kMaxShownFaults) turn();
      if (dice_.one_in(2)) {  // the others of these rounds run to their ends
        for (const auto& [id, active] : active_) engine_.cancel(id);
      }
      drain();
      check_idle();
      const Level now{count_descriptors(), resident_bytes()};
      if (!level && elapsed() >= warm) level = now;
      if (level) check_level(*level, now);
      last_ = now;
      ++num_rounds_;
    }
    first_ = level.value_or(last_);
    check_variety();
    return report(elapsed());
  }

 private:
  // A request in progress: which sequences have ended and, for a probe, its output so far.
  struct Active {
    int32_t num_outputs = 1;
    std::vector<FinishReason> ends;
    std::optional<size_t> probe;
    std::vector<int32_t> tokens;
  };

  static EngineOptions options_for(const std::string& model) {
    EngineOptions options;
    options.dtype = DType::f32;
    options.max_context = kMaxContext;
    options.max_batch = 12;
    options.max_step_tokens = 64;
    options.max_queue = 6;
    options.kv_bytes =
        kPoolContexts * kMaxContext * model::load_config(model).kv_bytes_per_token(options.dtype);
    return options;
  }

  void fault(std::string what) {
    if (faults_.size() < kMaxShownFaults) faults_.push_back(std::move(what));
  }

  void add(Request request, std::optional<size_t> probe = {}) {
    const int32_t num_outputs = request.num_outputs;
    const std::optional<RequestId> id = engine_.submit(std::move(request));
    if (!id) {
      ++num_full_;
      return;
    }
    ++num_submitted_;
    active_[*id] = {.num_outputs = num_outputs,
                    .ends = std::vector(static_cast<size_t>(num_outputs), FinishReason::none),
                    .probe = probe,
                    .tokens = {}};
  }

  // Submits and cancels some requests, then runs one step.
  void turn() {
    if (dice_.one_in(2)) {
      if (dice_.one_in(4)) {
        const auto probe = static_cast<size_t>(dice_(0, std::ssize(probes_) - 1));
        Request request = probes_[probe];
        request.priority = static_cast<int32_t>(dice_(-2, 2));
        add(std::move(request), probe);
      } else {
        add(make_random(dice_, *engine_.tokenizer(), kMaxContext));
      }
    }
    if (dice_.one_in(50)) refuse_one();
    if (!active_.empty() && dice_.one_in(12)) {
      auto it = active_.begin();
      std::advance(it, dice_(0, std::ssize(active_) - 1));
      engine_.cancel(it->first);
    }
    step();
    if (dice_.one_in(20)) check_pages();
  }

  void refuse_one() {
    Request request = make_random(dice_, *engine_.tokenizer(), kMaxContext);
    spoil(dice_, request, engine_.vocab(), kMaxContext);
    try {
      engine_.submit(std::move(request));
      fault("a request that can not run was taken");
    } catch (const Error&) {
      ++num_refused_;
    }
  }

  void step() {
    for (const SequenceOutput& news : engine_.step()) take(news);
  }

  void take(const SequenceOutput& news) {
    const auto found = active_.find(news.request);
    if (found == active_.end() || news.index < 0 || news.index >= found->second.num_outputs) {
      return fault(concat("news of sequence ", news.index, " of request ", news.request,
                          ", which is not under way"));
    }
    Active& active = found->second;
    FinishReason& end = active.ends[static_cast<size_t>(news.index)];
    if (end != FinishReason::none) {
      fault(concat("sequence ", news.index, " of request ", news.request, " ended as ", name(end),
                   " and then had news"));
    }
    if (active.probe) {
      for (const OutputToken& token : news.tokens) active.tokens.push_back(token.token);
    }
    end = news.finish;
    if (end == FinishReason::none) return;
    ++num_ends_[end];
    if (end == FinishReason::error) fault(concat("request ", news.request, ": ", news.error));
    const bool is_over =
        std::ranges::none_of(active.ends, [](FinishReason e) { return e == FinishReason::none; });
    if (!is_over) return;
    if (active.probe) check_probe(active, news);
    active_.erase(found);
  }

  // A probe must repeat its first answer, which it gave while nothing else ran. If it was
  // cancelled, its output must be the beginning of that answer.
  void check_probe(const Active& active, const SequenceOutput& news) {
    std::vector<int32_t>& answer = answers_[*active.probe];
    if (answer.empty()) answer = active.tokens;
    const bool is_whole = news.finish != FinishReason::cancelled;
    const bool is_same =
        active.tokens.size() <= answer.size() &&
        std::ranges::equal(active.tokens, std::span(answer).first(active.tokens.size())) &&
        (!is_whole || active.tokens.size() == answer.size());
    ++num_compared_;
    if (!is_same) fault(concat("probe ", *active.probe, " was answered in another way"));
  }

  void drain() {
    int64_t idle_steps = 0;
    while (engine_.has_work()) {
      const int64_t before = engine_.metrics().num_steps;
      step();
      idle_steps = engine_.metrics().num_steps == before ? idle_steps + 1 : 0;
      if (idle_steps > 1000) return fault("the engine has work and does none of it");
    }
  }

  void check_pages() {
    try {
      engine_.check_pages();
    } catch (const Error& error) {
      fault(error.what());
    }
  }

  void check_idle() {
    check_pages();
    const EngineMetrics metrics = engine_.metrics();
    if (metrics.num_held_pages != 0) {
      fault(concat(metrics.num_held_pages, " pages are held by an idle engine"));
    }
    if (metrics.num_running != 0 || metrics.num_waiting != 0) fault("sequences of nobody remain");
    for (const auto& [id, active] : active_) fault(concat("request ", id, " has not ended"));
    active_.clear();
  }

  void check_level(const Level& level, const Level& now) {
    if (now.descriptors != level.descriptors) {
      fault(concat(now.descriptors, " descriptors are open; ", level.descriptors, " were"));
    }
    if (!kHasSanitizer && now.resident > level.resident + kAllowedGrowth) {
      fault(concat(now.resident >> 20, " MiB are resident; ", level.resident >> 20,
                   " were after the warm-up"));
    }
  }

  // A run that never preempts or never cancels proves nothing.
  void check_variety() {
    const EngineMetrics metrics = engine_.metrics();
    if (metrics.num_steps < kStepsToHaveSeenAll) return;
    const std::pair<std::string_view, int64_t> seen[] = {
        {"preemption", metrics.num_preemptions},
        {"cached prefix", metrics.num_cached_tokens},
        {"cancelled request", num_ends_[FinishReason::cancelled]},
        {"missed deadline", num_ends_[FinishReason::deadline]},
        {"stop", num_ends_[FinishReason::stop]},
        {"full queue", num_full_},
        {"refusal", num_refused_},
        {"comparison", num_compared_ - std::ssize(probes_)}};
    for (const auto& [what, count] : seen) {
      if (count <= 0) fault(concat("there was no ", what));
    }
  }

  int report(double seconds) {
    const EngineMetrics metrics = engine_.metrics();
    const auto number = [](int64_t value) { return static_cast<long long>(value); };
    std::printf("soak: %.0f s, %lld rounds, %lld steps, seed %llu\n", seconds, number(num_rounds_),
                number(metrics.num_steps), static_cast<unsigned long long>(settings_.seed));
    std::printf("  requests     %lld taken, %lld refused, %lld met a full queue\n",
                number(num_submitted_), number(num_refused_), number(num_full_));
    std::printf("  sequences   ");
    for (const auto& [reason, count] : num_ends_) {
      std::printf(" %s %lld", std::string(name(reason)).c_str(), number(count));
    }
    std::printf("\n  tokens       %lld generated, %lld of prompts, %lld cached, %lld replayed\n",
                number(metrics.num_generated_tokens), number(metrics.num_prompt_tokens),
                number(metrics.num_cached_tokens), number(metrics.num_replayed_tokens));
    std::printf("  preemptions  %lld\n  probes       %lld compared\n",
                number(metrics.num_preemptions), number(num_compared_));
    std::printf("  pages        %lld held of %lld\n", number(metrics.num_held_pages),
                number(metrics.num_pages));
    std::printf("  descriptors  %lld, then %lld\n", number(first_.descriptors),
                number(last_.descriptors));
    std::printf("  memory       %.1f MiB after the warm-up, then %.1f MiB%s\n",
                static_cast<double>(first_.resident) / (1 << 20),
                static_cast<double>(last_.resident) / (1 << 20),
                kHasSanitizer ? " (a sanitizer's, not judged)" : "");
    for (const std::string& what : faults_) std::printf("  WRONG: %s\n", what.c_str());
    std::printf("%s\n", faults_.empty() ? "nothing is left behind" : "failed");
    return faults_.empty() ? 0 : 1;
  }

  Settings settings_;
  Dice dice_;
  std::unique_ptr<Engine> loaded_;
  engine::EngineImpl& engine_;
  std::vector<Request> probes_;
  std::vector<std::vector<int32_t>> answers_;
  std::map<RequestId, Active> active_;
  std::map<FinishReason, int64_t> num_ends_;
  std::vector<std::string> faults_;
  Level first_, last_;
  int64_t num_submitted_ = 0;
  int64_t num_refused_ = 0;
  int64_t num_full_ = 0;
  int64_t num_compared_ = 0;
  int64_t num_rounds_ = 0;
};

Settings read_settings(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value == nullptr) fail(concat(flag, " needs a value"));
    if (flag == "--seconds") {
      settings.seconds = std::atof(value);
    } else if (flag == "--seed") {
      settings.seed = std::strtoull(value, nullptr, 10);
    } else if (flag == "--model") {
      settings.model = value;
    } else {
      fail(concat("unknown flag ", flag, "; there are --seconds, --seed and --model"));
    }
  }
  expects(settings.seconds > 0, "--seconds must be more than 0");
  return settings;
}

}  // namespace
}  // namespace tessera::soak

int main(int argc, char** argv) {
  try {
    return tessera::soak::Soak(tessera::soak::read_settings(argc, argv)).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera_soak: %s\n", error.what());
    return 2;
  }
}
