// Counters and histograms of the server, in the text format of Prometheus.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::server {

class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1, 0) {}
  void add(double value);
  // The lines of all buckets, the sum and the count.
  void print(std::string& out, std::string_view name, std::string_view labels) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // [bounds + 1], not cumulative
  double sum_ = 0;
};

// What happened to one request that is over.
struct RequestTimes {
  double queue_s = 0;    // until its first tokens were planned
  double prefill_s = 0;  // from then to its first token
  double decode_s = 0;   // from its first token to its last
  double total_s = 0;
  int64_t num_prompt_tokens = 0;
  int64_t num_generated_tokens = 0;
  bool has_started = false;  // it got a token
};

// Names are those of vLLM with the prefix `tessera_`, so that dashboards carry over.
class ServerMetrics {
 public:
  ServerMetrics();
  void add_first_token(double seconds) { first_token_.add(seconds); }
  void add_inter_token(double seconds) { inter_token_.add(seconds); }
  void add_finished(std::string_view reason, const RequestTimes& times);
  void add_response(int status) { ++responses_[status]; }
  void add_lost_client() { ++num_lost_clients_; }

  struct Now {
    EngineMetrics engine = {};
    int64_t num_admitted = 0;  // requests that are not over
    int64_t num_connections = 0;
  };
  std::string print(std::string_view model, const Now& now) const;

 private:
  Histogram first_token_, inter_token_, queue_, prefill_, decode_, total_;
  Histogram prompt_tokens_, generated_tokens_;
  std::map<std::string, int64_t, std::less<>> finished_;
  std::map<int, int64_t> responses_;
  int64_t num_lost_clients_ = 0;
};

}  // namespace tessera::server
