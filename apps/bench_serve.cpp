// `tessera bench serve`: load on a server of the OpenAI API, and how it answers.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "apps/json_text.h"
#include "apps/load_client.h"
#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;

// Ids that every vocabulary has, and that are no control tokens.
constexpr int kFirstToken = 300, kLastToken = 999;

struct LoadFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string model;
  std::string api_key;
  int64_t num_requests = 100;
  int64_t concurrency = 16;
  double rate = 0;
  std::string prompt = "128";
  std::string output = "64";
  double ttft_limit_ms = 0;
  double token_limit_ms = 0;
  double timeout = 600;
  int64_t seed = 1;
  std::string json_path;
};

struct Range {
  int64_t low = 0, high = 0;
};

// "128", or "100-1024" for a uniform distribution.
Range parse_range(const std::string& text, const char* flag) {
  const size_t dash = text.find('-');
  const auto low = parse_quantity(text.substr(0, dash));
  const auto high = dash == std::string::npos ? low : parse_quantity(text.substr(dash + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > (1 << 24)) {
    throw UsageError(
        concat(flag, " is ", in_quotes(text),
               "; give a number of tokens, such as 128, or a range, such as 100-1024"));
  }
  return {*low, *high};
}

std::vector<LoadRequest> make_requests(const LoadFlags& flags) {
  const Range prompt = parse_range(flags.prompt, "--prompt-tokens");
  const Range output = parse_range(flags.output, "--output-tokens");
  std::mt19937_64 random(static_cast<uint64_t>(flags.seed));
  std::uniform_int_distribution<int64_t> prompt_size(prompt.low, prompt.high);
  std::uniform_int_distribution<int64_t> output_size(output.low, output.high);
  std::uniform_int_distribution<int> token(kFirstToken, kLastToken);
  std::exponential_distribution<double> gap(flags.rate > 0 ? flags.rate : 1.0);
  std::vector<LoadRequest> requests;
  double start = 0;
  for (int64_t i = 0; i < flags.num_requests; ++i) {
    std::vector<int> ids(static_cast<size_t>(prompt_size(random)));
    std::ranges::generate(ids, [&] { return token(random); });
    Json body = {{"prompt", ids},    {"max_tokens", output_size(random)},
                 {"temperature", 0}, {"ignore_eos", true},
                 {"stream", true},   {"stream_options", {{"include_usage", true}}}};
    if (!flags.model.empty()) body["model"] = flags.model;
    requests.push_back({.start_s = start, .body = body.dump()});
    if (flags.rate > 0) start += gap(random);
  }
  return requests;
}

double percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - static_cast<double>(low));
}

// Milliseconds.
Json summary(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  const auto shown_ms = [](double value) { return rounded(value * 1e3); };
  const double mean = seconds.empty() ? 0 : sum / static_cast<double>(seconds.size());
  return {{"mean", shown_ms(mean)},
          {"p50", shown_ms(percentile(seconds, 0.5))},
          {"p90", shown_ms(percentile(seconds, 0.9))},
          {"p99", shown_ms(percentile(seconds, 0.99))},
          {"max", shown_ms(seconds.empty() ? 0 : seconds.back())}};
}

// The mean time of a token after the first.
double token_seconds(const LoadResult& one) {
  const double gaps = std::accumulate(one.gaps_s.begin(), one.gaps_s.end(), 0.0);
  return one.num_tokens > 1 ? gaps / static_cast<double>(one.num_tokens - 1) : 0;
}

// The time in which every request had its first token and none its last: how fast tokens come then.
// Empty if there is none. An event may have several tokens; they count as its request's mean.
Json steady_part(const std::vector<LoadResult>& results) {
  double begin = 0, end = std::numeric_limits<double>::infinity();
  for (const LoadResult& one : results) {
    const double first = one.start_s + one.first_s;
    begin = std::max(begin, first);
    end = std::min(end, std::accumulate(one.gaps_s.begin(), one.gaps_s.end(), first));
  }
  if (!(end > begin)) return {};
  double num_tokens = 0;
  for (const LoadResult& one : results) {
    double time = one.start_s + one.first_s;
    int64_t num_events = 0;
    for (const double gap : one.gaps_s) {
      time += gap;
      num_events += time > begin && time <= end ? 1 : 0;
    }
    num_tokens += static_cast<double>(num_events) * static_cast<double>(one.num_tokens) /
                  static_cast<double>(one.gaps_s.size() + 1);
  }
  return {{"begin_s", rounded(begin)},
          {"seconds", rounded(end - begin)},
          {"tokens", rounded(num_tokens)},
          {"tokens_per_second", rounded(num_tokens / (end - begin))}};
}

Json report(const LoadFlags& flags, const std::vector<LoadResult>& results) {
  std::vector<double> first, gaps, per_token, total;
  int64_t num_prompt = 0, num_output = 0, num_good = 0;
  double end = 0;
  Json failures = Json::object();
  for (const LoadResult& one : results) {
    end = std::max(end, one.start_s + one.total_s);
    if (!one.error.empty()) {
      failures[one.error] = failures.value(one.error, 0) + 1;
      continue;
    }
    first.push_back(one.first_s);
    per_token.push_back(token_seconds(one));
    total.push_back(one.total_s);
    gaps.insert(gaps.end(), one.gaps_s.begin(), one.gaps_s.end());
    num_prompt += one.num_prompt_tokens;
    num_output += one.num_tokens;
    const auto keeps = [](double seconds, double limit_ms) {
      return limit_ms == 0 || seconds * 1e3 <= limit_ms;
    };
    num_good +=
        keeps(one.first_s, flags.ttft_limit_ms) && keeps(token_seconds(one), flags.token_limit_ms)
            ? 1
            : 0;
  }
  const auto per_second = [&](size_t count) {
    return end > 0 ? rounded(static_cast<double>(count) / end) : 0.0;
  };
  Json json = {
      {"url", flags.url},
      {"requests", results.size()},
      {"concurrency", flags.concurrency},
      {"rate", flags.rate},
      {"prompt_tokens", flags.prompt},
      {"output_tokens", flags.output},
      {"seconds", rounded(end)},
      {"completed", total.size()},
      {"failed", failures},
      {"requests_per_second", per_second(total.size())},
      {"output_tokens_per_second", per_second(static_cast<size_t>(num_output))},
      {"total_tokens_per_second", per_second(static_cast<size_t>(num_prompt + num_output))},
      {"first_token_ms", summary(std::move(first))},
      {"inter_token_ms", summary(std::move(gaps))},
      {"time_per_output_token_ms", summary(std::move(per_token))},
      {"request_ms", summary(std::move(total))}};
  const bool has_all_at_once =
      failures.empty() && flags.rate == 0 && std::ssize(results) <= flags.concurrency;
  if (const Json steady = has_all_at_once ? steady_part(results) : Json(); !steady.is_null()) {
    json["all_at_once"] = steady;
  }
  if (flags.ttft_limit_ms > 0 || flags.token_limit_ms > 0) {
    json["goodput"] = {{"first_token_limit_ms", flags.ttft_limit_ms},
                       {"token_limit_ms", flags.token_limit_ms},
                       {"requests", num_good},
                       {"requests_per_second", per_second(static_cast<size_t>(num_good))}};
  }
  return json;
}

std::string table(const Json& json) {
  std::string text =
      concat(json["completed"].dump(), " of ", json["requests"].dump(), " requests in ",
             json["seconds"].dump(), " s: ", json["requests_per_second"].dump(), " requests/s, ",
             json["output_tokens_per_second"].dump(), " output tok/s\n");
  for (const auto& [why, count] : json["failed"].items()) {
    text += concat("failed: ", count.dump(), " times ", why, "\n");
  }
  text += "| ms | mean | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|\n";
  for (const char* name :
       {"first_token_ms", "inter_token_ms", "time_per_output_token_ms", "request_ms"}) {
    text += concat("| ", std::string_view(name).substr(0, std::string_view(name).size() - 3));
    for (const auto& [key, value] : json[name].items()) text += concat(" | ", value.dump());
    text += " |\n";
  }
  if (json.contains("goodput")) {
    text += concat("within the limits: ", json["goodput"]["requests"].dump(), " requests, ",
                   json["goodput"]["requests_per_second"].dump(), " a second\n");
  }
  return text;
}

int run(const LoadFlags& flags) {
  const LoadTarget target = as_usage([&] { return parse_target(flags.url); });
  if (flags.num_requests < 1 || flags.concurrency < 1) {
    throw UsageError("--requests and --concurrency must be at least 1");
  }
  const std::vector<LoadResult> results =
      run_load(target, flags.api_key, make_requests(flags), flags.concurrency, flags.timeout);
  const Json json = report(flags, results);
  if (flags.json_path == "-") {
    write_out(json_text(json));
  } else {
    write_out(table(json));
  }
  if (!flags.json_path.empty() && flags.json_path != "-") {
    std::ofstream file(flags.json_path);
    file << json_text(json);
    if (!file.flush()) {
      throw Error(concat("--json: ", in_quotes(flags.json_path), " could not be written"));
    }
  }
  return json["completed"] == json["requests"] ? 0 : 1;
}

}  // namespace

void add_bench_serve(CLI::App& bench, int& exit_status) {
  const auto flags = std::make_shared<LoadFlags>();
  Verb verb(bench, "serve", "Times a server of the OpenAI API under load, streamed completions");
  FlagSet load(verb, "Load");
  load.value("--url", flags->url, "URL", "The server; /v1 may follow");
  load.value("--model", flags->model, "NAME", "If the server needs one");
  load.value("--api-key", flags->api_key, "KEY", "If the server asks for one");
  load.quantity("--requests", flags->num_requests, "N", "In all");
  load.quantity("--concurrency", flags->concurrency, "N", "Most in progress at once");
  load.value("--rate", flags->rate, "X", "Requests a second, at random times; 0: no pauses");
  load.value("--prompt-tokens", flags->prompt, "N|A-B", "Random tokens of a prompt, or a range");
  load.value("--output-tokens", flags->output, "N|A-B", "Tokens of an answer, or a range");
  load.value("--seed", flags->seed, "N", "Of lengths, tokens and times");
  load.value("--timeout", flags->timeout, "SECONDS", "For one request");
  FlagSet output(verb, "Output");
  output.value("--ttft-limit", flags->ttft_limit_ms, "MS",
               "Count requests with a first token by then");
  output.value("--token-limit", flags->token_limit_ms, "MS", "And this mean time of later tokens");
  output.value("--json", flags->json_path, "FILE", "Write the figures; - is standard output");
  verb.on_run([flags, &exit_status] { exit_status = run(*flags); });
}

}  // namespace tessera::apps
