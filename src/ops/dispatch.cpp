// The parts of dispatch that do not depend on the operation: the log, and why no row was found.
// SPDX-License-Identifier: MIT
#include "ops/dispatch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <utility>

#include "core/launch_log.h"
#include "core/text.h"

namespace tessera::ops {
namespace {

constexpr size_t kMaxListed = 6;

std::string describe(RowKey key) {
  std::string text(name(key.in));
  if (key.weight != key.in) text += concat(" by ", name(key.weight));
  if (key.has_table) text += " with a table";
  if (key.packing != Packing::rows) text += concat(" in packing '", name(key.packing), "'");
  if (key.out != key.in || key.weight != key.in) text += concat(" to ", name(key.out));
  return text;
}

std::string names(std::span<const RowOption> rows) {
  std::string text;
  for (const RowOption& row : rows) {
    if (!text.empty()) text += ", ";
    text += row.name;
  }
  return text;
}

// Rows that share more types with the key come first; otherwise in the order of the tables.
std::string nearest(std::span<const RowOption> rows, RowKey key) {
  const auto shared = [key](const RowOption& row) {
    return int{row.key.in == key.in} + int{row.key.out == key.out} +
           int{row.key.weight == key.weight && row.key.has_table == key.has_table};
  };
  std::vector<RowOption> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const RowOption& a, const RowOption& b) { return shared(a) > shared(b); });
  if (sorted.size() > kMaxListed) sorted.erase(sorted.begin() + kMaxListed, sorted.end());
  return names(sorted);
}

std::string_view library_needs(Library library) {
  return library == Library::sm90 ? "compute capability 90" : "compute capability 80 or more";
}

// Why a row cannot run here, apart from its arguments; empty if it can.
std::string obstacle(const RowOption& row, const Target& target, const Context& ctx) {
  if (!runs_on(row.library, target.compute_capability)) {
    return concat("it needs ", library_needs(row.library), " and the device has ",
                  target.compute_capability);
  }
  if (ctx.batch_invariant && !row.is_batch_invariant) {
    return "its result depends on the batch, and batch_invariant is set";
  }
  return {};
}

[[noreturn]] void refuse_forced_row(std::string_view op, const Target& target, const Context& ctx,
                                    RowKey key, const RowOption& row) {
  const std::string why = obstacle(row, target, ctx);
  const std::string subject = concat(op, ": row '", row.name, "' ");
  if (!why.empty()) fail(concat(subject, "cannot run on ", to_string(target.device), ": ", why));
  if (row.key != key) {
    fail(concat(subject, "is for ", describe(row.key), " and the arguments are ", describe(key),
                "; force no row to let one be chosen"));
  }
  fail(concat(subject,
              "is for these types but does not take these arguments; force no row to let "
              "one be chosen"));
}

[[noreturn]] void refuse_unfitting(std::string_view op, const Target& target, const Context& ctx,
                                   RowKey key, std::span<const RowOption> rows) {
  const std::string subject =
      concat(op, ": no row takes ", describe(key), " on ", to_string(target.device));
  for (const RowOption& row : rows) {
    if (!row.takes_args) continue;
    fail(
        concat(subject, "; the nearest, ", row.name, ", cannot run: ", obstacle(row, target, ctx)));
  }
  fail(concat(subject, " (compute capability ", target.compute_capability,
              "); the nearest rows are ", nearest(rows, key)));
}

}  // namespace

bool is_asked_to_log_rows() {
  const char* value = std::getenv("TESSERA_LOG");
  return value != nullptr && std::string_view(value).find("rows") != std::string_view::npos;
}

void log_choice(std::string_view op, const void* row, std::string_view row_name) {
  static std::mutex mutex;
  static std::set<std::pair<std::string, const void*>> seen;
  const std::lock_guard lock(mutex);
  if (!seen.emplace(op, row).second) return;
  const std::string line = concat("tessera: ", op, " runs ", row_name, "\n");
  std::fputs(line.c_str(), stderr);
}

LoggedCall::LoggedCall(OpLog& log, std::string_view op, std::string row, OpCost cost)
    : log_(log),
      call_{.op = std::string(op), .row = std::move(row), .cost = std::move(cost)},
      first_launch_(num_launches()) {
  log_.is_in_call = true;
  call_.begin_ns = steady_now_ns();
}

void LoggedCall::end() {
  call_.end_ns = steady_now_ns();
  call_.kernels = launches_since(first_launch_);
  log_.calls.push_back(std::move(call_));
}

void refuse_row_on_cpu(std::string_view op, const Context& ctx) {
  fail(concat(op, ": row '", ctx.row,
              "' is a GPU kernel and the tensors are on the cpu; copy them to a GPU, or force no "
              "row"));
}

void refuse_rows(std::string_view op, const Target& target, const Context& ctx, RowKey key,
                 std::span<const RowOption> rows) {
  if (rows.empty()) {
    fail(
        concat(op, ": the tensors are on ", to_string(target.device),
               " and this build has no GPU kernels for it; copy them to the cpu, or configure with "
               "TESSERA_CUDA=ON if it was off"));
  }
  if (ctx.row.empty()) refuse_unfitting(op, target, ctx, key, rows);
  for (const RowOption& row : rows) {
    if (row.name == ctx.row) refuse_forced_row(op, target, ctx, key, row);
  }
  fail(concat(op, ": there is no row '", ctx.row, "'; its rows are ", names(rows)));
}

}  // namespace tessera::ops
