// The text that Prometheus reads.
// SPDX-License-Identifier: MIT
#include "server/metrics.h"

#include <gtest/gtest.h>

#include <array>

namespace tessera::server {
namespace {

TEST(HistogramText, IsCumulativeAndHasItsSum) {
  constexpr std::array kBounds = {1.0, 2.0};
  Histogram values(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 9.0}) values.add(value);
  std::string text;
  values.print(text, "x", "a=\"b\"");
  EXPECT_EQ(text,
            "x_bucket{a=\"b\",le=\"1\"} 2\nx_bucket{a=\"b\",le=\"2\"} 3\n"
            "x_bucket{a=\"b\",le=\"+Inf\"} 4\nx_sum{a=\"b\"} 12\nx_count{a=\"b\"} 4\n");
}

TEST(MetricsPage, HasEveryFamilyOnceAndEscapesTheModel) {
  ServerMetrics metrics;
  metrics.add_first_token(0.01);
  metrics.add_finished("stop", {.total_s = 1, .has_started = true});
  metrics.add_finished("abort", {.total_s = 1});
  metrics.add_response(200);
  ServerMetrics::Now now;
  now.engine.num_pages = 4;
  now.engine.num_held_pages = 1;
  const std::string text = metrics.print("a\"b\\", now);
  EXPECT_NE(text.find("tessera_kv_cache_usage_perc{model_name=\"a\\\"b\\\\\"} 0.25\n"),
            std::string::npos);
  for (const char* name :
       {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
        "prefix_cache_hits_total", "num_preemptions_total", "time_to_first_token_seconds",
        "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds"}) {
    const std::string head = std::string("# TYPE tessera_") + name + " ";
    const size_t at = text.find(head);
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_EQ(text.find(head, at + 1), std::string::npos) << name;
  }
  EXPECT_NE(text.find("request_queue_time_seconds_count{model_name=\"a\\\"b\\\\\"} 1\n"),
            std::string::npos);
  EXPECT_NE(text.find(",finished_reason=\"abort\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera::server
