// `tessera bench`: walks rows and workloads, checks each against the CPU, times what is right.
// SPDX-License-Identifier: MIT
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "bench/problem.h"
#include "bench/report.h"
#include "bench/timer.h"
#include "bench/turns.h"
#include "ops/registry.h"

namespace tessera::bench {

struct BenchOptions {
  std::string family;                  // "elementwise"; empty: all
  std::string row;                     // only this row; empty: the preferred row of each key
  std::string peer;                    // timed in turns with each row that shares shapes with it
  std::vector<std::string> workloads;  // only these; empty: all
  std::string dtype = "bf16";          // rows that take or give it; "all"
  bool every_row = false;              // also rows that dispatch would pass over
  bool is_small = false;               // only problems of 16 MiB or less
  bool use_cpu = false;                // time the CPU where there is a GPU
  bool has_energy = true;
  std::string json_path;
  std::string baseline_path;
  TimerOptions timer;
  TurnOptions turns;
};

// Prints the table, writes the JSON. Returns how many problems were wrong or failed.
int run_bench(const BenchOptions& options, std::ostream& out);

// Runs every row once on its small shapes with fixed inputs and prints a hash of the outputs'
// bytes, one line each: two builds that print the same compute the same. Returns how many failed.
int print_hashes(const BenchOptions& options, std::ostream& out);

// The CPU's implementations in the form of rows: "rms_norm_cpu_bf16".
std::vector<ops::RowInfo> cpu_rows();
// The support matrix of one family ("": all), as a Markdown table or as plain lines.
std::string list_rows(std::string_view family, bool is_markdown);
// Every named workload's shapes, with the types each suits, as JSON: what bench/compare.py times.
std::string list_workloads(std::string_view family);

Device bench_device(bool use_cpu = false);  // the GPU if there is one
Machine describe_machine(Device device);

}  // namespace tessera::bench
