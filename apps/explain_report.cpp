// An explained step as a table and as JSON.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "apps/e2e_explain.h"
#include "apps/output.h"
#include "core/text.h"

namespace tessera::apps {
namespace {

using Json = nlohmann::ordered_json;
using bench::ExplainedRow;
using bench::Explanation;

constexpr std::string_view kLegend =
    "  time: from the end of the work before it, or its own beginning if later, to its end, so "
    "that "
    "kernels\n"
    "        that overlap are counted once; gap: the device idle before it. Both are for one call; "
    "all times\n"
    "        and gaps of all calls add up to the wall time.\n";

double per_call(double sum, const ExplainedRow& row) {
  return sum / static_cast<double>(std::max<int64_t>(1, row.count));
}

// Lines of cells; the first columns are text, the rest numbers, each column as wide as it needs.
class Table {
 public:
  explicit Table(size_t num_text_columns) : num_text_columns_(num_text_columns) {}

  void add(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], cells[i].size());
    lines_.push_back(std::move(cells));
  }
  void add_heading(std::string text) { lines_.push_back({std::move(text)}); }

  std::string text() const {
    std::string all;
    for (const std::vector<std::string>& cells : lines_) {
      std::string line = "  ";
      for (size_t i = 0; i < cells.size(); ++i) {
        const size_t room = cells.size() == 1 ? 0 : widths_[i] - cells[i].size();
        const std::string pad(room, ' ');
        line += i < num_text_columns_ ? cells[i] + pad : pad + cells[i];
        if (i + 1 < cells.size()) line += "  ";
      }
      all += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    return all;
  }

 private:
  size_t num_text_columns_;
  std::vector<size_t> widths_;
  std::vector<std::vector<std::string>> lines_;
};

std::vector<std::string> cells_of(const ExplainedRow& row, double wall_us) {
  const double all = row.time_us + row.gap_us;
  return {row.op,
          row.row.empty() ? "-" : row.row,
          row.shape.empty() ? "-" : row.shape,
          concat(row.count),
          concat(row.num_kernels),
          row.bytes ? fixed(*row.bytes * 1e-6, 3) : "-",
          row.floor_us > 0 ? fixed(row.floor_us, 2) : "-",
          fixed(per_call(row.time_us, row), 2),
          fixed(per_call(row.gap_us, row), 2),
          fixed(all, 1),
          wall_us > 0 ? fixed(100 * all / wall_us, 1) : "-"};
}

// A stage may be entered several times in a step.
std::vector<std::pair<std::string, double>> stage_times_us(const Explanation& explanation) {
  std::vector<std::pair<std::string, double>> times;
  for (const bench::Span& stage : explanation.stages) {
    const double us = static_cast<double>(stage.end_ns - stage.begin_ns) * 1e-3;
    const auto found =
        std::ranges::find(times, stage.name, [](const auto& one) { return one.first; });
    if (found == times.end()) {
      times.emplace_back(stage.name, us);
    } else {
      found->second += us;
    }
  }
  return times;
}

std::string stages_text(const Explanation& explanation) {
  std::string text;
  for (const auto& [name, us] : stage_times_us(explanation)) {
    text += concat(text.empty() ? "" : ", ", name, " ", fixed(us, 1));
  }
  return text;
}

// Where a row stands: before, in or after the part that repeats.
std::string_view part_of(const Explanation& explanation, size_t row) {
  if (row < explanation.first_repeated) return "before";
  return row < explanation.first_repeated + explanation.num_repeated ? "repeated" : "after";
}

double rounded_to(double value, double digits) { return std::round(value * digits) / digits; }
double thousandths(double value) { return rounded_to(value, 1e3); }

}  // namespace

std::string explain_text(const Look& look, const bench::Ceilings& ceilings) {
  const Explanation& e = look.explanation;
  Table table(3);
  table.add({"operation", "row", "shape", "calls", "kernels", "MB", "floor", "time", "gap", "all",
             "% of wall"});
  for (size_t i = 0; i < e.rows.size(); ++i) {
    if (e.num_repeated > 0 && i == e.first_repeated) {
      table.add_heading(concat("- ", e.num_repeats, " times:"));
    }
    if (e.num_repeated > 0 && i == e.first_repeated + e.num_repeated) {
      table.add_heading("- then:");
    }
    table.add(cells_of(e.rows[i], e.wall_us));
  }
  const auto share = [&](double part) {
    return concat(fixed(part, 1), " us (", fixed(e.wall_us > 0 ? 100 * part / e.wall_us : 0, 1),
                  " %)");
  };
  std::string text = concat("  step ", look.step, ", call by call; MB, floor, time and gap are of ",
                            "one call, in us, at ", fixed(ceilings.read_tbs, 3), " TB/s");
  if (ceilings.bf16_tflops > 0) text += concat(" and ", fixed(ceilings.bf16_tflops, 0), " TFLOPS");
  text += concat("\n", table.text(), "  wall ", fixed(e.wall_us, 1), " us = work ",
                 share(e.time_us), " + gaps ", share(e.gap_us), "; busy ", share(e.busy_us),
                 "; floor ", share(e.floor_us), ", ", fixed(e.bytes * 1e-6, 1), " MB\n  host ",
                 fixed(e.host_us, 1), " us a step, ", fixed(e.hidden_us, 1),
                 " of them while the device was busy; its stages in us: ", stages_text(e), "\n",
                 kLegend);
  if (e.num_missing > 0) {
    text += concat("  ", e.num_missing, " kernels that the noted step launched are not in the ",
                   "trace: the steps differ, and some rows lack their bytes.\n");
  }
  return text;
}

Json explain_rows_json(const Explanation& explanation) {
  Json rows = Json::array();
  for (size_t i = 0; i < explanation.rows.size(); ++i) {
    const ExplainedRow& row = explanation.rows[i];
    rows.push_back({{"part", std::string(part_of(explanation, i))},
                    {"op", row.op},
                    {"row", row.row},
                    {"shape", row.shape},
                    {"calls", row.count},
                    {"kernels", row.num_kernels},
                    {"bytes", row.bytes ? Json(std::llround(*row.bytes)) : Json(nullptr)},
                    {"flops", std::llround(row.flops)},
                    {"floor_us", thousandths(row.floor_us)},
                    {"time_us", thousandths(per_call(row.time_us, row))},
                    {"gap_us", thousandths(per_call(row.gap_us, row))},
                    {"all_us", thousandths(row.time_us + row.gap_us)}});
  }
  return rows;
}

Json explain_sum_json(const Look& look, const bench::Ceilings& ceilings) {
  const Explanation& e = look.explanation;
  Json stages = Json::object();
  for (const auto& [name, us] : stage_times_us(e)) stages[name] = thousandths(us);
  return {{"step", look.step},
          {"wall_us", thousandths(e.wall_us)},
          {"time_us", thousandths(e.time_us)},
          {"gap_us", thousandths(e.gap_us)},
          {"busy_us", thousandths(e.busy_us)},
          {"floor_us", thousandths(e.floor_us)},
          {"bytes", std::llround(e.bytes)},
          {"host_us", thousandths(e.host_us)},
          {"hidden_us", thousandths(e.hidden_us)},
          {"stages_us", stages},
          {"repeats", e.num_repeats},
          {"missing_kernels", e.num_missing},
          {"read_tbs", thousandths(ceilings.read_tbs)},
          {"bf16_tflops", thousandths(ceilings.bf16_tflops)}};
}

}  // namespace tessera::apps
