// From traced work and logged operations to the table of a step.
// SPDX-License-Identifier: MIT
#include "bench/explain.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/text.h"

namespace tessera::bench {
namespace {

constexpr double kMicroseconds = 1e-3;  // per nanosecond
constexpr size_t kNoCall = std::numeric_limits<size_t>::max();

// A launch that the log knows of.
struct Launch {
  size_t call;
  std::string_view symbol;
};

std::vector<Launch> launches_of(const OpLog& log) {
  std::vector<Launch> launches;
  for (size_t i = 0; i < log.calls.size(); ++i) {
    for (const char* symbol : log.calls[i].kernels) {
      launches.push_back({i, symbol == nullptr ? std::string_view() : symbol});
    }
  }
  return launches;
}

// For each kernel the launch that it is, by the longest common subsequence of their symbols: order
// is kept, and neither a kernel without an operation nor one that is missing shifts the rest.
std::vector<size_t> matched_launches(const std::vector<const Activity*>& kernels,
                                     const std::vector<Launch>& launches) {
  const size_t n = kernels.size(), m = launches.size();
  const auto is_same = [&](size_t i, size_t j) { return kernels[i]->symbol == launches[j].symbol; };
  std::vector<std::vector<uint32_t>> longest(n + 1, std::vector<uint32_t>(m + 1));
  for (size_t i = n; i-- > 0;) {
    for (size_t j = m; j-- > 0;) {
      longest[i][j] = is_same(i, j) ? longest[i + 1][j + 1] + 1
                                    : std::max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  std::vector<size_t> matched(n, kNoCall);
  for (size_t i = 0, j = 0; i < n && j < m;) {
    if (is_same(i, j)) {
      matched[i++] = j++;
    } else if (longest[i + 1][j] >= longest[i][j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return matched;
}

// The call of each piece of work; kNoCall: none.
struct Match {
  std::vector<size_t> calls;
  int64_t num_missing = 0;
};

Match match_calls(const std::vector<Activity>& work, const OpLog& log) {
  Match match{.calls = std::vector<size_t>(work.size(), kNoCall)};
  std::vector<const Activity*> kernels;
  std::vector<size_t> places;
  size_t next_call = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    if (work[i].kind == ActivityKind::kernel) {
      kernels.push_back(&work[i]);
      places.push_back(i);
    } else if (work[i].kind == ActivityKind::call && next_call < log.calls.size()) {
      match.calls[i] = next_call++;  // on the CPU work is made of the calls themselves
    }
  }
  const std::vector<Launch> launches = launches_of(log);
  const std::vector<size_t> matched = matched_launches(kernels, launches);
  for (size_t i = 0; i < matched.size(); ++i) {
    if (matched[i] != kNoCall) match.calls[places[i]] = launches[matched[i]].call;
  }
  const auto num_found = std::ranges::count_if(matched, [](size_t j) { return j != kNoCall; });
  match.num_missing = static_cast<int64_t>(launches.size()) - num_found;
  return match;
}

// One call with all its kernels, or a piece of work that no operation called for.
struct Item {
  std::string key;
  ExplainedRow row;
};

ExplainedRow row_of(const OpCall& call, const Ceilings& ceilings) {
  ExplainedRow row{.op = call.op, .row = call.row, .shape = call.cost.shape};
  if (!call.cost.is_known) return row;
  row.bytes = call.cost.bytes();
  row.flops = call.cost.flops;
  row.floor_us = floor_us(ceilings, *row.bytes, row.flops);
  return row;
}

ExplainedRow row_of(const Activity& work) {
  ExplainedRow row{.op = work.name, .row = {}, .shape = {}};
  if (work.kind != ActivityKind::kernel) row.bytes = static_cast<double>(work.bytes);
  return row;
}

std::vector<Item> items_of(const TracedStep& step, const OpLog& log, const Ceilings& ceilings,
                           const Match& match) {
  std::vector<Item> items;
  std::map<size_t, size_t> item_of_call;
  int64_t previous_end = step.before_ns.value_or(step.work.front().begin_ns);
  for (size_t i = 0; i < step.work.size(); ++i) {
    const Activity& work = step.work[i];
    const size_t call = match.calls[i];
    const auto [found, is_new] = item_of_call.try_emplace(call, items.size());
    size_t place = found->second;
    if (is_new || call == kNoCall) {
      place = items.size();
      items.push_back(
          {.key = {}, .row = call == kNoCall ? row_of(work) : row_of(log.calls[call], ceilings)});
    }
    ExplainedRow& row = items[place].row;
    row.count = 1;
    row.num_kernels += work.kind == ActivityKind::kernel ? 1 : 0;
    row.gap_us +=
        static_cast<double>(std::max<int64_t>(0, work.begin_ns - previous_end)) * kMicroseconds;
    row.time_us += static_cast<double>(
                       std::max<int64_t>(0, work.end_ns - std::max(previous_end, work.begin_ns))) *
                   kMicroseconds;
    previous_end = std::max(previous_end, work.end_ns);
  }
  for (Item& item : items) {
    item.key =
        concat(item.row.op, "|", item.row.row, "|", item.row.shape, "|", item.row.num_kernels);
  }
  return items;
}

void add_rows(std::vector<Item>& items, Explanation& explanation) {
  std::vector<std::string> keys;
  for (const Item& item : items) keys.push_back(item.key);
  const Repeat repeat = find_repeat(keys);
  const size_t end = repeat.first + repeat.count * repeat.period;
  explanation.first_repeated = repeat.first;
  explanation.num_repeated = repeat.count > 1 ? repeat.period : 0;
  explanation.num_repeats = static_cast<int64_t>(repeat.count);
  for (size_t i = 0; i < items.size(); ++i) {
    const bool is_again = repeat.count > 1 && i >= repeat.first + repeat.period && i < end;
    if (!is_again) {
      explanation.rows.push_back(std::move(items[i].row));
      continue;
    }
    ExplainedRow& row = explanation.rows[repeat.first + (i - repeat.first) % repeat.period];
    row.count += 1;
    row.time_us += items[i].row.time_us;
    row.gap_us += items[i].row.gap_us;
  }
}

// What the host did during the step, and how much of it while the device was busy.
void add_host(const Trace& trace, const TracedStep& step, std::string_view waiting,
              Explanation& explanation) {
  Intervals busy, calls, host;
  for (const Activity& work : trace.device) {
    Intervals& of = work.kind == ActivityKind::call ? calls : busy;
    of.add(work.begin_ns, work.end_ns);
  }
  const Span& whole = trace.steps[step.index];
  for (const Span& stage : trace.stages) {
    if (stage.begin_ns < whole.begin_ns || stage.end_ns > whole.end_ns) continue;
    explanation.stages.push_back(stage);
    if (stage.name != waiting) host.add(stage.begin_ns, stage.end_ns);
  }
  const int64_t own = host.length() - host.length_shared_with(calls);
  explanation.host_us = static_cast<double>(own) * kMicroseconds;
  explanation.hidden_us = static_cast<double>(host.length_shared_with(busy)) * kMicroseconds;
}

}  // namespace

std::vector<TracedStep> traced_steps(const Trace& trace) {
  std::vector<TracedStep> steps(trace.steps.size());
  for (size_t i = 0; i < steps.size(); ++i) steps[i].index = i;
  std::vector<Activity> sorted = trace.device;
  std::ranges::stable_sort(sorted, {}, &Activity::begin_ns);
  for (Activity& work : sorted) {
    const int64_t asked = work.launch_ns > 0 ? work.launch_ns : work.begin_ns;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (asked < trace.steps[i].begin_ns || asked > trace.steps[i].end_ns) continue;
      steps[i].end_ns = std::max(steps[i].end_ns, work.end_ns);
      steps[i].work.push_back(std::move(work));
      break;
    }
  }
  std::erase_if(steps, [](const TracedStep& step) { return step.work.empty(); });
  for (size_t i = 1; i < steps.size(); ++i) {
    steps[i].before_ns = std::max(steps[i - 1].end_ns, steps[i - 1].before_ns.value_or(0));
  }
  return steps;
}

Explanation explain(const Trace& trace, const TracedStep& step, const OpLog& log,
                    const Ceilings& ceilings, std::string_view waiting) {
  Explanation explanation;
  const Match match = match_calls(step.work, log);
  std::vector<Item> items = items_of(step, log, ceilings, match);
  explanation.num_missing = match.num_missing;
  add_rows(items, explanation);
  Intervals busy;
  for (const Activity& work : step.work) {
    const bool counts = work.kind == ActivityKind::kernel || work.kind == ActivityKind::call;
    if (counts) busy.add(work.begin_ns, work.end_ns);
  }
  const int64_t begin = step.before_ns.value_or(step.work.front().begin_ns);
  explanation.wall_us = static_cast<double>(step.end_ns - begin) * kMicroseconds;
  explanation.busy_us = static_cast<double>(busy.length_within(begin, step.end_ns)) * kMicroseconds;
  for (const ExplainedRow& row : explanation.rows) {
    const auto count = static_cast<double>(row.count);
    explanation.time_us += row.time_us;
    explanation.gap_us += row.gap_us;
    explanation.floor_us += count * row.floor_us;
    if (!row.row.empty()) explanation.bytes += count * row.bytes.value_or(0);
  }
  add_host(trace, step, waiting, explanation);
  return explanation;
}

std::vector<Activity> work_of(const OpLog& log) {
  std::vector<Activity> work;
  for (const OpCall& call : log.calls) {
    work.push_back({.kind = ActivityKind::call,
                    .name = call.op,
                    .begin_ns = call.begin_ns,
                    .end_ns = call.end_ns,
                    .launch_ns = call.begin_ns});
  }
  return work;
}

Repeat find_repeat(const std::vector<std::string>& keys) {
  Repeat best;
  for (size_t period = 1; 2 * period <= keys.size(); ++period) {
    size_t length = 0;  // of the run of elements that come again after `period`
    for (size_t i = 0; i + period <= keys.size(); ++i) {
      if (i + period < keys.size() && keys[i] == keys[i + period]) {
        ++length;
        continue;
      }
      const Repeat found{i - length, period, length / period + 1};
      length = 0;
      if (found.count < 2) continue;
      if (best.count < 2 || found.count * period > best.count * best.period) best = found;
    }
  }
  return best;
}

}  // namespace tessera::bench
