// Prometheus text.
// SPDX-License-Identifier: MIT
#include "server/metrics.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace tessera::server {
namespace {

constexpr std::array kTokenSeconds = {0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03,
                                      0.04,  0.05,   0.075, 0.1,  0.15,  0.2,  0.3,   0.4,
                                      0.5,   0.75,   1.0,   2.5,  5.0,   7.5,  10.0};
constexpr std::array kFirstSeconds = {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06,
                                      0.08,  0.1,    0.25,  0.5,  0.75, 1.0,  2.5,
                                      5.0,   7.5,    10.0,  20.0, 40.0, 80.0, 160.0};
constexpr std::array kRequestSeconds = {0.01, 0.025, 0.05, 0.1,   0.3,   0.5,   0.8,
                                        1.0,  1.5,   2.0,  2.5,   5.0,   10.0,  15.0,
                                        20.0, 30.0,  60.0, 120.0, 240.0, 480.0, 960.0};
constexpr std::array kTokens = {1.0,   2.0,    5.0,    10.0,   20.0,    50.0,    100.0,   200.0,
                                500.0, 1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.10g", value);
  return text.data();
}

// The value of a label, which may hold anything.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '\n') {
      out += "\\n";
      continue;
    }
    if (letter == '\\' || letter == '"') out += '\\';
    out += letter;
  }
  return out;
}

class Page {
 public:
  explicit Page(std::string_view model) : labels_("model_name=\"" + escaped(model) + "\"") {}

  void head(std::string_view name, std::string_view type, std::string_view help) {
    text_ += "# HELP tessera_" + std::string(name) + " " + std::string(help) + "\n# TYPE tessera_" +
             std::string(name) + " " + std::string(type) + "\n";
  }
  void line(std::string_view name, double value, std::string_view more = {}) {
    text_ += "tessera_" + std::string(name) + "{" + labels_ + std::string(more) + "} " +
             number(value) + "\n";
  }
  void gauge(std::string_view name, double value, std::string_view help) {
    head(name, "gauge", help);
    line(name, value);
  }
  void counter(std::string_view name, int64_t value, std::string_view help) {
    head(name, "counter", help);
    line(name, static_cast<double>(value));
  }
  void histogram(std::string_view name, const Histogram& values, std::string_view help) {
    head(name, "histogram", help);
    values.print(text_, "tessera_" + std::string(name), labels_);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_;
  std::string text_;
};

}  // namespace

void Histogram::add(double value) {
  const auto place = std::ranges::lower_bound(bounds_, value) - bounds_.begin();
  ++counts_[static_cast<size_t>(place)];
  sum_ += value;
}

void Histogram::print(std::string& out, std::string_view name, std::string_view labels) const {
  const std::string begin = std::string(name) + "_bucket{" + std::string(labels) + ",le=\"";
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? number(bounds_[i]) : "+Inf";
    out += begin + bound + "\"} " + std::to_string(below) + "\n";
  }
  out += std::string(name) + "_sum{" + std::string(labels) + "} " + number(sum_) + "\n";
  out += std::string(name) + "_count{" + std::string(labels) + "} " + std::to_string(below) + "\n";
}

ServerMetrics::ServerMetrics()
    : first_token_(kFirstSeconds),
      inter_token_(kTokenSeconds),
      queue_(kRequestSeconds),
      prefill_(kRequestSeconds),
      decode_(kRequestSeconds),
      total_(kRequestSeconds),
      prompt_tokens_(kTokens),
      generated_tokens_(kTokens) {}

void ServerMetrics::add_finished(std::string_view reason, const RequestTimes& times) {
  ++finished_[std::string(reason)];
  total_.add(times.total_s);
  if (!times.has_started) return;
  queue_.add(times.queue_s);
  prefill_.add(times.prefill_s);
  decode_.add(times.decode_s);
  prompt_tokens_.add(static_cast<double>(times.num_prompt_tokens));
  generated_tokens_.add(static_cast<double>(times.num_generated_tokens));
}

std::string ServerMetrics::print(std::string_view model, const Now& now) const {
  const EngineMetrics& engine = now.engine;
  Page page(model);
  const double used = engine.num_pages == 0 ? 0.0
                                            : static_cast<double>(engine.num_held_pages) /
                                                  static_cast<double>(engine.num_pages);
  page.gauge("num_requests_running", static_cast<double>(engine.num_running),
             "Sequences in the batch");
  page.gauge("num_requests_waiting", static_cast<double>(engine.num_waiting),
             "Requests that wait to start");
  page.gauge("num_requests_admitted", static_cast<double>(now.num_admitted),
             "Requests that are not over, running or waiting");
  page.gauge("kv_cache_usage_perc", used, "Share of the KV cache in use; 1 is all of it");
  page.gauge("num_connections", static_cast<double>(now.num_connections), "Open connections");
  page.counter("prefix_cache_queries_total", engine.num_prompt_tokens + engine.num_cached_tokens,
               "Prompt tokens looked up in the prefix cache");
  page.counter("prefix_cache_hits_total", engine.num_cached_tokens,
               "Prompt tokens found in the prefix cache");
  page.counter("num_preemptions_total", engine.num_preemptions, "Preempted sequences");
  page.counter("prompt_tokens_total", engine.num_prompt_tokens, "Prompt tokens computed");
  page.counter("generation_tokens_total", engine.num_generated_tokens, "Tokens generated");
  page.counter("spec_decode_num_draft_tokens_total", engine.num_drafted_tokens, "Tokens guessed");
  page.counter("spec_decode_num_accepted_tokens_total", engine.num_accepted_tokens,
               "Guessed tokens that were right");
  page.counter("engine_steps_total", engine.num_steps, "Steps of the engine");
  page.counter("lost_clients_total", num_lost_clients_,
               "Clients that left, or were cut off, before their answer was complete");
  page.head("request_success_total", "counter", "Requests that are over, by why they ended");
  for (const auto& [reason, count] : finished_) {
    page.line("request_success_total", static_cast<double>(count),
              ",finished_reason=\"" + escaped(reason) + "\"");
  }
  page.head("http_responses_total", "counter", "Responses by HTTP status");
  for (const auto& [status, count] : responses_) {
    page.line("http_responses_total", static_cast<double>(count),
              ",status=\"" + std::to_string(status) + "\"");
  }
  page.histogram("time_to_first_token_seconds", first_token_, "From arrival to the first token");
  page.histogram("inter_token_latency_seconds", inter_token_, "Between two tokens of a sequence");
  page.histogram("e2e_request_latency_seconds", total_, "From arrival to the end");
  page.histogram("request_queue_time_seconds", queue_, "From arrival to the first planned step");
  page.histogram("request_prefill_time_seconds", prefill_, "From there to the first token");
  page.histogram("request_decode_time_seconds", decode_, "From the first token to the last");
  page.histogram("request_prompt_tokens", prompt_tokens_, "Prompt tokens of a request");
  page.histogram("request_generation_tokens", generated_tokens_, "Generated tokens of a request");
  return page.take();
}

}  // namespace tessera::server
