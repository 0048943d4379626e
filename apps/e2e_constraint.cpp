// Passes with and without a constraint, in turns.
// SPDX-License-Identifier: MIT
#include "apps/e2e_constraint.h"

#include "apps/options.h"
#include "apps/output.h"
#include "bench/timer.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/grammar/constraint.h"

namespace tessera::apps {
namespace {

// A list of records: keys, bounded strings, numbers and choices follow each other, and no text that
// a pass generates is long enough to end it.
constexpr const char* kSchema = R"({"type":"array","minItems":500,"items":{"type":"object",
"properties":{"name":{"type":"string","maxLength":24},
"age":{"type":"integer","minimum":0,"maximum":120},"kind":{"enum":["child","adult"]}},
"required":["name","age","kind"],"additionalProperties":false}})";

void join(E2eResult& all, E2eResult&& more) {
  all.num_decoded += more.num_decoded;
  const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(all.step_seconds, more.step_seconds);
  append(all.host_seconds, more.host_seconds);
}

}  // namespace

double ConstraintCost::share() const { return plain.decode_rate() / held.decode_rate() - 1; }

ConstraintCost measure_constraint(Engine& engine, const E2eShape& shape, int num_warmup,
                                  int num_repeats) {
  if (shape.generate == 0) throw UsageError("--constrained is for workloads that generate");
  const ConstraintPtr constraint = Constraint::compile({.text = kSchema});
  ConstraintCost cost;
  for (int i = 0; i < num_repeats; ++i) {
    const int warmup = i == 0 ? num_warmup : 0;
    const auto seed = static_cast<uint32_t>(2 * i + 1);  // no pass repeats the texts of another
    E2eResult plain = run_e2e(engine, shape, warmup, 1, {}, seed);
    if (warmup > 0) run_e2e(engine, shape, warmup - 1, 1, constraint, 0);
    const EngineMetrics before = engine.metrics();
    E2eResult held = run_e2e(engine, shape, 0, 1, constraint, seed + 1);
    const EngineMetrics after = engine.metrics();
    cost.num_masks += after.num_masks - before.num_masks;
    cost.mask_seconds += after.mask_seconds - before.mask_seconds;
    cost.num_wasted_rows += after.num_wasted_rows - before.num_wasted_rows;
    if (held.step_seconds.size() != plain.step_seconds.size()) {
      fail(concat("bench e2e: a constrained pass had ", held.step_seconds.size(),
                  " steps of the whole batch, a plain one ", plain.step_seconds.size(),
                  ": a sequence ended early"));
    }
    if (i == 0) {
      cost.plain = std::move(plain);
      cost.held = std::move(held);
    } else {
      join(cost.plain, std::move(plain));
      join(cost.held, std::move(held));
    }
  }
  return cost;
}

nlohmann::ordered_json constraint_json(const ConstraintCost& cost) {
  const auto percentile = [&](const std::vector<double>& seconds, double share, double unit) {
    return rounded(bench::percentile(seconds, share) * unit);
  };
  const auto& steps = cost.held.step_seconds;
  const double mask_us = 1e6 * cost.mask_seconds / static_cast<double>(cost.num_masks);
  return {{"schema", kSchema},
          {"decode_tokens_per_second", rounded(cost.held.decode_rate())},
          {"step_ms",
           {{"median", percentile(steps, 0.5, 1e3)},
            {"p10", percentile(steps, 0.1, 1e3)},
            {"p90", percentile(steps, 0.9, 1e3)}}},
          {"host_us", percentile(cost.held.host_seconds, 0.5, 1e6)},
          {"masks", cost.num_masks},
          {"mask_us", rounded(mask_us)},
          {"wasted_rows", cost.num_wasted_rows},
          {"cost", rounded(cost.share())},
          {"cost_of_median_step",
           rounded(bench::percentile(steps, 0.5) / bench::percentile(cost.plain.step_seconds, 0.5) -
                   1)}};
}

std::string constraint_text(const nlohmann::ordered_json& json) {
  return concat(
      "  masks   decode ", show_rate(json["decode_tokens_per_second"].get<double>()),
      " with a JSON schema on every sequence: ", fixed(json["cost"].get<double>() * 100, 2),
      " % more time, ", fixed(json["cost_of_median_step"].get<double>() * 100, 2),
      " % of the median step; ", json["mask_us"].get<double>(), " us a mask\n");
}

}  // namespace tessera::apps
