// How a public operation becomes a launch: check the arguments, find the row, run it.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/row.h"
#include "ops/cost.h"
#include "tessera/core/context.h"
#include "tessera/core/error.h"

namespace tessera::ops {

// What dispatch knows of an operation. `check` throws on arguments that no implementation takes,
// such as tensors on different devices. `rows_sm90` are preferred to `rows_vendor` (cuBLASLt, found
// at run time) and those to `rows`; within each table the order is preference.
template <class Args>
struct Op {
  std::string_view name;
  void (*check)(const Args&);
  void (*cpu)(const Args&);
  std::span<const Row<Args>> rows_sm90;
  std::span<const Row<Args>> rows;
  std::span<const Row<Args>> rows_vendor = {};
};

// Where a call would run; the compute capability decides which libraries' rows may be used.
struct Target {
  Device device;
  int compute_capability = 0;  // 90 for the H200; 0: nothing runs
};

// Whether the environment has TESSERA_LOG=rows.
bool is_asked_to_log_rows();
inline bool logs_rows() {
  static const bool is_on = is_asked_to_log_rows();
  return is_on;
}
// Prints the first use of a row (null: of the CPU) by an operation.
void log_choice(std::string_view op, const void* row, std::string_view row_name);

// What a refusal says about a row.
struct RowOption {
  std::string name;
  RowKey key;
  Library library;
  bool is_batch_invariant;
  bool takes_args;
};
// Throws the reason why no row was found: the forced one does not exist or fit, or none fits.
[[noreturn]] void refuse_rows(std::string_view op, const Target& target, const Context& ctx,
                              RowKey key, std::span<const RowOption> rows);
[[noreturn]] void refuse_row_on_cpu(std::string_view op, const Context& ctx);

// The first of `rows` that takes these checked arguments, or null; Context::row forces one by name.
template <class Args>
const Row<Args>* first_fitting(std::span<const Row<Args>> rows, const Args& args, RowKey key,
                               const Target& target, const Context& ctx) {
  for (const Row<Args>& row : rows) {
    if (!runs_on(row.library, target.compute_capability)) continue;
    if (ctx.batch_invariant && !row.is_batch_invariant) continue;
    if (!ctx.row.empty() && row.name() != ctx.row) continue;
    if (row.takes(args, key)) return &row;  // checked last: a vendor's row may ask its library
  }
  return nullptr;
}

// The row that runs these arguments on a GPU, or null: the first that fits, unless an sm90 row
// yields to a vendor's row that fits too.
template <class Args>
const Row<Args>* find_row(const Op<Args>& op, const Args& args, const Target& target,
                          const Context& ctx) {
  const RowKey key = key_of(args);
  const Row<Args>* sm90 = first_fitting(op.rows_sm90, args, key, target, ctx);
  if (sm90 != nullptr && (sm90->yields == nullptr || !sm90->yields(args))) return sm90;
  const Row<Args>* vendor = first_fitting(op.rows_vendor, args, key, target, ctx);
  if (vendor != nullptr) return vendor;
  return sm90 != nullptr ? sm90 : first_fitting(op.rows, args, key, target, ctx);
}

template <class Args>
[[noreturn]] void refuse(const Op<Args>& op, const Args& args, const Target& target,
                         const Context& ctx) {
  const RowKey key = key_of(args);
  std::vector<RowOption> options;
  for (std::span<const Row<Args>> rows : {op.rows_sm90, op.rows_vendor, op.rows}) {
    for (const Row<Args>& row : rows) {
      options.push_back(
          {row.name(), row.key, row.library, row.is_batch_invariant, row.takes(args, key)});
    }
  }
  refuse_rows(op.name, target, ctx, key, options);
}

// In a build without GPU kernels there is no row to choose, and the device is not asked.
template <class Args>
Target target_of(const Op<Args>& op, Device device) {
  const bool has_rows = !op.rows_sm90.empty() || !op.rows_vendor.empty() || !op.rows.empty();
  const bool has_gpu = has_rows && !device.is_cpu();
  return {device, has_gpu ? device_info(device).compute_capability : 0};
}

// Checks the arguments and finds the row that runs them, or refuses. Null: the CPU runs them.
template <class Args>
const Row<Args>* choose(const Op<Args>& op, const Args& args, Device device, const Context& ctx) {
  op.check(args);
  if (device.is_cpu()) {
    if (!ctx.row.empty()) refuse_row_on_cpu(op.name, ctx);
    return nullptr;
  }
  const Target target = target_of(op, device);
  const Row<Args>* row = find_row(op, args, target, ctx);
  if (row == nullptr) refuse(op, args, target, ctx);
  return row;
}

// A row that was chosen; null: the CPU.
template <class Args>
void run_row(const Op<Args>& op, const Row<Args>* row, const Args& args, Device device,
             const Context& ctx) {
  if (row == nullptr) return op.cpu(args);
  const DeviceGuard guard(device);
  row->launch(args, ctx);
}

// A call that is noted, while it runs.
class LoggedCall {
 public:
  LoggedCall(OpLog& log, std::string_view op, std::string row, OpCost cost);
  ~LoggedCall() { log_.is_in_call = false; }
  LoggedCall(const LoggedCall&) = delete;
  LoggedCall& operator=(const LoggedCall&) = delete;
  void end();  // adds the call to the log, with the kernels launched since

 private:
  OpLog& log_;
  OpCall call_;
  uint64_t first_launch_;
};

// Checks, then runs on `device`, where the arguments live.
template <class Args>
void run(const Op<Args>& op, const Args& args, Device device, const Context& ctx) {
  if (ctx.dry_run != nullptr) {
    try {
      (void)choose(op, args, device, ctx);
    } catch (const Error& error) {
      ctx.dry_run->refusals.emplace_back(error.what());
    }
    return;
  }
  const Row<Args>* row = choose(op, args, device, ctx);
  const auto row_name = [row] { return row == nullptr ? std::string("cpu") : row->name(); };
  if (logs_rows()) log_choice(op.name, row, row_name());
  OpLog* log = current_op_log();
  if (log == nullptr || log->is_in_call) return run_row(op, row, args, device, ctx);
  LoggedCall call(*log, op.name, row_name(), cost_of(args, ctx.stream));
  run_row(op, row, args, device, ctx);
  call.end();
}

// Whether `run` would find a row: the same lookup.
template <class Args>
bool is_supported(const Op<Args>& op, const Args& args, Device device, const Context& ctx) {
  try {
    op.check(args);
    if (device.is_cpu()) return ctx.row.empty();
    return find_row(op, args, target_of(op, device), ctx) != nullptr;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tessera::ops
