// The walk over rows, workloads and shapes.
// SPDX-License-Identifier: MIT
#include "bench/bench.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <thread>

#include "bench/host_cost.h"
#include "bench/instance.h"
#include "bench/power.h"
#include "bench/result_file.h"
#include "bench/verify.h"
#include "core/build_info.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr int64_t kFullCheckBytes = int64_t{256} << 20;  // above it the check samples rows
constexpr int64_t kSmallBytes = int64_t{16} << 20;
constexpr int64_t kCpuMostBytes = int64_t{128} << 20;  // larger problems take too long on a CPU
constexpr int64_t kCpuCacheBytes = int64_t{64} << 20;  // more than most CPUs have for two cores
constexpr double kEnergySeconds = 0.4;                 // the counter ticks every 20 to 100 ms

std::string dtype_name(RowKey key) { return std::string(std::string_view(types_of(key))); }

// Enough sets that a rotation is twice the cache, and at least two.
int64_t num_sets_for(const Problem& problem, Device device) {
  const int64_t set_bytes = std::max<int64_t>(Instance::set_bytes(problem), 1);
  const int64_t cache = device.is_cpu() ? kCpuCacheBytes : device_info(device).l2_bytes;
  return std::clamp<int64_t>(2 * cache / set_bytes + 1, 2, 8192);
}

class Bench {
 public:
  Bench(const BenchOptions& options, std::ostream& out)
      : options_(options),
        out_(out),
        device_(bench_device(options.use_cpu)),
        meter_(pci_bus_id(device_)),
        rows_(device_.is_cpu() ? cpu_rows() : ops::all_rows()) {
    if (!options.baseline_path.empty()) baseline_ = read_times(options.baseline_path);
  }

  int run() {
    check_names();
    std::optional<ResultFile> file;
    if (!options_.json_path.empty()) file.emplace(options_.json_path);
    report_.machine = describe_machine(device_);
    report_.ceilings = measure_ceilings(device_);
    print_header(report_, out_);
    for (const ops::RowInfo& row : rows_) {
      if (is_wanted(row)) run_row(row);
    }
    if (num_refused_ > 0) {
      out_ << num_refused_ << " shapes that the rows timed here do not take were left out\n";
    }
    if (num_alone_ > 0) {
      out_ << num_alone_ << " shapes were timed alone: " << options_.peer
           << " serves them itself or does not take them\n";
    }
    if (num_skipped_ > 0) {
      out_ << num_skipped_ << " shapes over the size limit "
           << (device_.is_cpu() ? "of the CPU bench" : "of --small") << " were left out\n";
    }
    if (file) file->write(report_json(report_));
    if (num_failed_ > 0) out_ << num_failed_ << " problems failed; see above\n";
    return num_failed_;
  }

 private:
  // A misspelt name is refused, instead of giving an empty table.
  void check_names() const {
    if (!options_.peer.empty() && device_.is_cpu()) {
      fail("bench: --peer needs a GPU; the CPU has one implementation of each operation");
    }
    const auto known = [&](std::string_view what, const std::string& wanted, auto&& has) {
      if (wanted.empty() || std::ranges::any_of(rows_, has)) return;
      fail(concat("bench: there is no ", what, " \"", wanted, "\"; see tessera bench --list"));
    };
    known("family", options_.family, [&](const auto& r) { return r.family == options_.family; });
    known("row", options_.row, [&](const auto& r) { return r.name == options_.row; });
    known("row", options_.peer, [&](const auto& r) { return r.name == options_.peer; });
    for (const std::string& workload : options_.workloads) {
      known("workload", workload, [&](const auto& r) {
        const ProblemMaker* maker = find_maker(r.op);
        return maker != nullptr && std::ranges::find(maker->workloads, workload, &Workload::name) !=
                                       maker->workloads.end();
      });
    }
  }

  bool is_named(std::string_view workload) const {
    return options_.workloads.empty() ||
           std::ranges::find(options_.workloads, workload) != options_.workloads.end();
  }

  bool runs_here(const ops::RowInfo& row) const {
    return device_.is_cpu() || runs_on(row.library, device_info(device_).compute_capability);
  }

  bool is_wanted(const ops::RowInfo& row) const {
    if (!options_.family.empty() && row.family != options_.family) return false;
    if (!options_.row.empty()) return row.name == options_.row && runs_here(row);
    if (!runs_here(row)) return false;
    // A 16-bit copy stands for all 16-bit types, and copies of pages for every type.
    const bool has_dtype = options_.dtype == "all" || name(row.key.in) == options_.dtype ||
                           name(row.key.out) == options_.dtype ||
                           (row.op == "copy" && row.key == RowKey{DType::f16, DType::f16}) ||
                           row.op == "kv_copy_pages";
    if (!has_dtype) return false;
    if (options_.every_row) return true;
    // The first row of its types stands for the row that the operation would choose: see served_by.
    const auto first = std::ranges::find_if(rows_, [&](const ops::RowInfo& other) {
      return other.op == row.op && other.key == row.key && runs_here(other);
    });
    return first->name == row.name;
  }

  bool takes(const ops::RowInfo& row, const Problem& problem) const {
    return runs_here(row) && is_taken(problem, device_, Context{.row = row.name});
  }

  // The row that the operation chooses for these types; null: none.
  const ops::RowInfo* chosen(const ops::RowInfo& like, const Problem& problem) const {
    const std::string name = served_row(problem, device_);
    const auto it = std::ranges::find_if(rows_, [&](const ops::RowInfo& other) {
      return other.op == like.op && other.key == like.key &&
             (name.empty() ? takes(other, problem) : other.name == name);
    });
    return it == rows_.end() ? nullptr : &*it;
  }

  // The row that `problem` is timed with: the one asked for, or the one chosen. Null: none.
  const ops::RowInfo* served_by(const ops::RowInfo& row, const Problem& problem) const {
    if (device_.is_cpu()) return &row;
    const bool is_fixed = options_.every_row || !options_.row.empty();
    if (!is_fixed) return chosen(row, problem);
    return takes(row, problem) ? &row : nullptr;
  }

  // The row that `row` is timed in turns with on `problem`; null: none.
  const ops::RowInfo* peer_of(const ops::RowInfo& row, const Problem& problem) {
    if (options_.peer.empty()) return nullptr;
    const auto peer = std::ranges::find(rows_, options_.peer, &ops::RowInfo::name);
    const bool is_other = peer->op == row.op && peer->key == row.key && peer->name != row.name;
    if (is_other && takes(*peer, problem)) return &*peer;
    ++num_alone_;
    return nullptr;
  }

  void run_row(const ops::RowInfo& row) {
    const ProblemMaker* maker = find_maker(row.op);
    if (maker == nullptr) {
      ++num_failed_;
      out_ << row.name << ": no problem maker for " << row.op << "\n";
      return;
    }
    for (const Workload& workload : maker->workloads) {
      if (!is_named(workload.name)) continue;
      for (const Shape& shape : workload.shapes) {
        if (!maker->fits(row.key, shape)) continue;
        try {
          run_shape(row, *maker, workload, shape);
        } catch (const std::exception& error) {
          ++num_failed_;
          out_ << row.name << " " << to_string(shape) << ": " << error.what() << "\n";
        }
      }
    }
  }

  void run_shape(const ops::RowInfo& wanted, const ProblemMaker& maker, const Workload& workload,
                 const Shape& shape) {
    const int64_t most = options_.is_small  ? kSmallBytes
                         : device_.is_cpu() ? kCpuMostBytes
                                            : std::numeric_limits<int64_t>::max();
    const Problem sizes = maker.make(wanted.key, shape, Fill::none, 0);
    if (sizes.storage_bytes > most) {
      ++num_skipped_;
      return;
    }
    const ops::RowInfo* served = served_by(wanted, sizes);
    if (served == nullptr) {
      ++num_refused_;
      return;
    }
    const ops::RowInfo& row = *served;
    const ops::RowInfo* peer = peer_of(row, sizes);
    const Problem problem = maker.make(row.key, shape, Fill::normal, 20261115);
    Instance instance(problem, device_, num_sets_for(problem, device_));
    if (device_.is_cpu()) {
      instance.reset();
    } else {
      const Reference reference(maker, row.key, problem, kFullCheckBytes);
      if (peer != nullptr) check_row(*peer, reference, instance);
      check_row(row, reference, instance);
    }
    Result result;
    const Timing timing = time_row(row, peer, instance, result);
    result.workload = workload.name;
    result.row = row.name;
    result.dtype = dtype_name(row.key);
    result.shape = shape;
    result.us = timing.us;
    result.p10 = timing.p10;
    result.p90 = timing.p90;
    result.tbs = problem.bytes / timing.us * 1e-6;
    result.tflops = problem.flops / timing.us * 1e-6;
    result.percent_of_floor =
        100 * floor_us(report_.ceilings, problem.bytes, problem.flops) / timing.us;
    if (!device_.is_cpu()) {
      // A row that dispatch would not choose is forced by name, and the lookup of the name counts
      // too.
      const bool is_chosen = chosen(row, sizes)->name == row.name;
      const Call call = call_of(instance, is_chosen ? std::string_view{} : row.name);
      result.host_us = measure_host_us(device_, instance.num_sets(), call, timing.us);
    }
    if (options_.has_energy && !device_.is_cpu()) measure_energy(timing, result);
    const auto base = baseline_.find(time_key(row.name, shape));
    if (base != baseline_.end()) result.baseline_us = base->second;
    print_result(result, out_);
    report_.results.push_back(std::move(result));
  }

  // Runs the row as a plain call, which comes before any capture: a vendor's row chooses among its
  // algorithms there.
  void check_row(const ops::RowInfo& row, const Reference& reference, Instance& instance) const {
    instance.reset();
    instance.run(0, Context{.row = row.name});
    synchronize(device_);
    const std::string wrong = reference.check(instance);
    if (!wrong.empty()) fail(concat("WRONG, not timed: ", row.name, ": ", wrong));
  }

  static Call call_of(const Instance& instance, std::string_view row_name) {
    return [&instance, row_name](int64_t set, const Context& ctx) {
      Context named = ctx;
      named.row = row_name;
      instance.run(set, named);
    };
  }

  Timing time_row(const ops::RowInfo& row, const ops::RowInfo* peer, const Instance& instance,
                  Result& result) const {
    const int64_t num_sets = instance.num_sets();
    const std::string_view forced = device_.is_cpu() ? std::string_view{} : row.name;
    const Call ours = call_of(instance, forced);
    if (peer == nullptr) return time_calls(device_, num_sets, ours, options_.timer);
    TimerOptions timer = options_.timer;
    timer.least_calls = 1;  // turns stay short, as 20 large products would not
    TurnOptions turns = options_.turns;
    turns.num_batches = timer.num_batches;
    const WarmBatch our_batch = warm_batch(device_, num_sets, ours, timer);
    const Call theirs = call_of(instance, peer->name);
    const Turns timed =
        time_in_turns(our_batch, warm_batch(device_, num_sets, theirs, timer), turns);
    result.peer = {peer->name, timed.peer.us, timed.peer.p10, timed.peer.p90, timed.ratio};
    return timed.ours;
  }

  void measure_energy(const Timing& timing, Result& result) {
    const double batch_us = timing.us * static_cast<double>(timing.num_calls);
    const int per_sample = std::max(1, static_cast<int>(50e3 / batch_us));
    const auto before = meter_.energy_joules();
    double watts = 0, elapsed_us = 0;
    int64_t num_runs = 0;
    int num_samples = 0;
    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    while (elapsed_us < kEnergySeconds * 1e6) {
      timing.batch->run(per_sample);
      num_runs += per_sample + 1;  // run() adds one at the front
      watts += meter_.power_watts().value_or(0);
      ++num_samples;
      elapsed_us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    }
    if (const auto clock = meter_.sm_clock_mhz()) report_.machine.sm_clock_mhz = clock;
    if (const auto clock = meter_.memory_clock_mhz()) report_.machine.memory_clock_mhz = clock;
    const auto after = meter_.energy_joules();
    const double num_calls = static_cast<double>(num_runs * timing.num_calls);
    double joules = 0;
    if (before && after && *after > *before) {
      joules = (*after - *before) / num_calls;
    } else if (watts > 0) {
      joules = watts / num_samples * elapsed_us * 1e-6 / num_calls;
    }
    if (joules <= 0) return;
    result.joules = joules;
    result.calls_per_second_per_watt = 1.0 / joules;  // calls / s over joules / s
  }

  const BenchOptions& options_;
  std::ostream& out_;
  Device device_;
  PowerMeter meter_;
  std::vector<ops::RowInfo> rows_;
  std::map<std::string, double> baseline_;
  Report report_;
  int num_failed_ = 0;
  int num_skipped_ = 0;
  int num_refused_ = 0;
  int num_alone_ = 0;
};

}  // namespace

int run_bench(const BenchOptions& options, std::ostream& out) { return Bench(options, out).run(); }

std::vector<ops::RowInfo> cpu_rows() {
  std::vector<ops::RowInfo> rows;
  for (const ProblemMaker& maker : problem_makers()) {
    for (const RowKey key : maker.keys) {
      rows.push_back({maker.family, maker.op, concat(maker.op, "_cpu_", dtype_name(key)),
                      Library::portable, key, true});
    }
  }
  return rows;
}

std::string list_rows(std::string_view family, bool is_markdown) {
  std::vector<ops::RowInfo> rows = ops::all_rows();
  const bool is_cpu = rows.empty();  // a build without CUDA
  if (is_cpu) rows = cpu_rows();
  std::string text;
  if (is_markdown) {
    text +=
        "| row | operation | library | in | out | batch-invariant |\n|---|---|---|---|---|---|\n";
  }
  const std::string_view separator = is_markdown ? " | " : "  ";
  for (const ops::RowInfo& row : rows) {
    if (!family.empty() && row.family != family) continue;
    const std::string_view library = is_cpu                         ? "cpu"
                                     : row.library == Library::sm90 ? "sm90"
                                                                    : "portable";
    const std::string_view tick = is_markdown ? "`" : "";
    const std::string_view invariant = row.is_batch_invariant ? "yes" : "no";
    text += concat(is_markdown ? "| " : "", tick, row.name, tick, separator, row.op, separator,
                   library, separator, name(row.key.in), separator, name(row.key.out), separator,
                   invariant, is_markdown ? " |" : "", "\n");
  }
  return text;
}

Device bench_device(bool use_cpu) {
  return use_cpu || num_cuda_devices() == 0 ? cpu_device() : cuda_device();
}

Machine describe_machine(Device device) {
  Machine machine;
  machine.commit = kCommit;
  machine.date = current_date();
  machine.cuda = cuda_runtime_version();
  if (machine.cuda.empty()) machine.cuda = "none";
  if (device.is_cpu()) {
    machine.gpu =
        concat("none; timed on the CPU, ", cpu_name(), " x ", std::thread::hardware_concurrency());
    machine.driver = "none";
    return machine;
  }
  const PowerMeter meter(pci_bus_id(device));
  machine.gpu = device_info(device).name;
  machine.driver = meter.driver_version();
  if (machine.driver.empty()) machine.driver = cuda_driver_version();
  machine.sm_clock_mhz = meter.sm_clock_mhz();
  machine.memory_clock_mhz = meter.memory_clock_mhz();
  return machine;
}

}  // namespace tessera::bench
