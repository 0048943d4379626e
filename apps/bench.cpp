// `tessera bench`: flags for the harness in bench/. `bench e2e` is in e2e.cpp.
// SPDX-License-Identifier: MIT
#include "bench/bench.h"

#include <memory>

#include "apps/options.h"
#include "apps/output.h"
#include "apps/verbs.h"

namespace tessera::apps {
namespace {

struct BenchFlags {
  bench::BenchOptions options;
  bool is_list = false;
  bool is_markdown = false;
  bool is_workloads = false;
  bool is_hash = false;
  bool has_no_energy = false;
};

int run(BenchFlags& flags) {
  if (flags.is_workloads) {
    write_out(bench::list_workloads(flags.options.family));
    return 0;
  }
  if (flags.is_list) {
    write_out(bench::list_rows(flags.options.family, flags.is_markdown));
    return 0;
  }
  flags.options.has_energy = !flags.has_no_energy;
  // Stops timing when the reader of the table is gone.
  OutputStream out;
  const auto bench = flags.is_hash ? bench::print_hashes : bench::run_bench;
  return bench(flags.options, out) == 0 ? 0 : 1;
}

}  // namespace

void add_bench(CLI::App& app, int& exit_status) {
  const auto flags = std::make_shared<BenchFlags>();
  bench::BenchOptions& options = flags->options;
  Verb verb(app, "bench",
            "Times kernels, each checked against the CPU first; e2e times a whole model");
  verb.positional("FAMILY", options.family, "Kernel family, such as elementwise; all if absent");
  FlagSet what(verb, "What is timed");
  what.value("--row", options.row, "NAME", "Only this row, as --list names it");
  what.value("--peer", options.peer, "ROW", "Time this row too, in turns; shows the ratio");
  what.list("--shapes", options.workloads, "NAME",
            "Only this named workload, such as norm; may be repeated");
  what.value("--dtype", options.dtype, "TYPE", "Rows that take or give this type; or all");
  what.toggle("--every-row", options.every_row, "Also rows that dispatch would pass over");
  what.toggle("--small", options.is_small, "Only problems of at most 16 MiB");
  what.toggle("--cpu", options.use_cpu, "Time the CPU even where there is a GPU");
  what.value("--warmup", options.timer.num_warmup, "N", "Batches run before timing");
  what.value("--iters", options.timer.num_batches, "N", "Batches timed; 0: enough for 0.15 s");
  what.ranged("--rounds", options.turns.num_rounds, 1, 1000, "N", "Turns each, with --peer");
  what.toggle("--no-energy", flags->has_no_energy, "Skip the energy measurement, 0.4 s a shape");
  FlagSet output(verb, "Output");
  output.value("--json", options.json_path, "FILE", "Write the results to this file");
  output.value("--baseline", options.baseline_path, "FILE", "Show the speed-up over this JSON");
  output.toggle("--list", flags->is_list, "List the rows and stop");
  output.toggle("--markdown", flags->is_markdown, "With --list: as a Markdown table");
  output.toggle("--workloads", flags->is_workloads, "Print the named shapes as JSON and stop");
  output.toggle("--hash", flags->is_hash, "Time nothing; print a hash of every row's results");
  add_bench_e2e(verb.app(), exit_status);
  add_bench_serve(verb.app(), exit_status);
  verb.on_run([flags, verb, &exit_status] {
    if (!verb.has_verb_below()) exit_status = run(*flags);
  });
}

}  // namespace tessera::apps
