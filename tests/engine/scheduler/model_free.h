// Scheduler and requests without a model: tests say which token follows each row.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/request_table.h"
#include "engine/scheduler.h"
#include "engine/validate.h"
#include "tests/engine/scheduler/tiny_model.h"

namespace tessera::testing {

struct ModelFree {
  explicit ModelFree(const EngineOptions& wanted, int64_t num_pages = 64)
      : options(engine::fill_options(wanted, tiny_config())), scheduler(options, num_pages) {}

  RequestId add(Request request) {
    auto active = std::make_unique<engine::ActiveRequest>();
    active->max_new_tokens = request.max_new_tokens;
    active->request = std::move(request);
    return requests.add(std::move(active));
  }
  // The first half of a step: whether there is something to run.
  bool assemble() { return scheduler.assemble(scheduler.plan(), step, rows); }
  // The second half: every row that can be continued is, each of its sequences by `token`.
  std::vector<SequenceOutput> commit(int32_t token) {
    std::vector<engine::RowResult> results(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!rows[i].completes) continue;
      const auto count = static_cast<size_t>(rows[i].sequence->num_rows);
      results[i].tokens.assign(count, OutputToken{token, 0.0f, {}});
    }
    return commit(results);
  }
  std::vector<SequenceOutput> commit(std::vector<engine::RowResult>& results) {
    requests.commit(rows, results);
    rows.clear();
    return requests.take_outputs();
  }
  EngineMetrics metrics() const {
    EngineMetrics all;
    scheduler.add_metrics(all);
    requests.add_metrics(all);
    return all;
  }

  EngineOptions options;
  engine::Scheduler scheduler;
  engine::RequestTable requests{scheduler, nullptr};
  engine::StepInput step;
  std::vector<engine::BatchRow> rows;
};

inline Request counting_request(int32_t num_prompt, int64_t max_new_tokens = 8) {
  Request request;
  for (int32_t i = 0; i < num_prompt; ++i) request.prompt.push_back(i);
  request.max_new_tokens = max_new_tokens;
  return request;
}

}  // namespace tessera::testing
