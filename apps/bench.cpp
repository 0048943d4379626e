// `tessera bench`: its options, handed to the harness.
// SPDX-License-Identifier: MIT
#include "bench/bench.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "apps/verbs.h"

namespace tessera::apps {

void add_bench(CLI::App& app, int& exit_status) {
  struct Flags {
    bench::BenchOptions options;
    bool is_list = false;
    bool is_markdown = false;
    bool is_workloads = false;
    bool has_no_energy = false;
  };
  const auto flags = std::make_shared<Flags>();
  bench::BenchOptions& options = flags->options;
  CLI::App* verb = app.add_subcommand(
      "bench", "Times kernels: checked against the CPU first, medians over CUDA-graph replays");
  verb->add_option("family", options.family, "Kernel family, such as elementwise; all if absent");
  verb->add_option("--row", options.row, "Only this row, as --list names it");
  verb->add_option("--shapes", options.workload, "Only this named workload, such as norm");
  verb->add_option("--dtype", options.dtype, "Rows that take or give this type; or all")
      ->capture_default_str();
  verb->add_flag("--every-row", options.every_row, "Also rows that dispatch would pass over");
  verb->add_flag("--small", options.is_small, "Only problems of at most 16 MiB");
  verb->add_flag("--cpu", options.use_cpu, "Time the CPU even where there is a GPU");
  verb->add_option("--json", options.json_path, "Write the results to this file");
  verb->add_option("--baseline", options.baseline_path, "Show the speed-up over this JSON file");
  verb->add_option("--warmup", options.timer.num_warmup, "Batches run before timing")
      ->capture_default_str();
  verb->add_option("--iters", options.timer.num_batches, "Batches timed; 0: enough for 0.15 s")
      ->capture_default_str();
  verb->add_flag("--no-energy", flags->has_no_energy, "Skip the energy measurement, 0.4 s a shape");
  verb->add_flag("--list", flags->is_list, "List the rows and stop");
  verb->add_flag("--markdown", flags->is_markdown, "With --list: as a Markdown table");
  verb->add_flag("--workloads", flags->is_workloads, "Print the named shapes as JSON and stop");
  verb->callback([flags, &exit_status] {
    if (flags->is_workloads) {
      std::cout << bench::list_workloads(flags->options.family);
      return;
    }
    if (flags->is_list) {
      std::cout << bench::list_rows(flags->options.family, flags->is_markdown);
      return;
    }
    flags->options.has_energy = !flags->has_no_energy;
    exit_status = bench::run_bench(flags->options, std::cout) == 0 ? 0 : 1;
  });
}

}  // namespace tessera::apps
