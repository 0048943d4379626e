// Results of a bench run: the record, its JSON, and the table a person reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/ceilings.h"
#include "bench/problem.h"

namespace tessera::bench {

// Another row on the same shape, timed in turns with the result's own.
struct PeerTime {
  std::string row;
  double us = 0;
  double p10 = 0;
  double p90 = 0;
  double ratio = 0;  // its time over ours, within a round; above 1: ours is faster
};

struct Result {
  std::string workload;
  std::string row;
  std::string dtype;  // "bf16", or "bf16_e4m3" where the output has another type
  Shape shape;
  double us = 0;
  double p10 = 0;
  double p90 = 0;
  double tbs = 0;
  double tflops = 0;
  double percent_of_floor = 0;
  std::optional<double> host_us;  // of the calling thread, per call
  std::optional<double> joules;   // per call
  std::optional<double> calls_per_second_per_watt;
  std::optional<PeerTime> peer;
  std::optional<double> baseline_us;  // the same row and shape in an earlier file
};

// Where and when the results were made.
struct Machine {
  std::string gpu;  // or the CPU's name, marked as such
  std::string driver;
  std::string cuda;
  std::string commit;
  std::string date;                 // UTC, "2026-11-15T04:20:00Z"
  std::optional<int> sm_clock_mhz;  // as found under load, never set
  std::optional<int> memory_clock_mhz;
};

struct Report {
  Machine machine;
  Ceilings ceilings;
  std::vector<Result> results;
};

std::string current_date();
std::string cpu_name();
// The instruction set that the CPU's vector code runs with: "baseline", "avx2" or "avx512".
std::string simd_name();

// The text of a results file.
std::string report_json(const Report& report);
// "row|shape" -> microseconds, of a file of such text.
std::map<std::string, double> read_times(const std::string& path);
std::string time_key(const std::string& row, const Shape& shape);

void print_header(const Report& report, std::ostream& out);
void print_result(const Result& result, std::ostream& out);

}  // namespace tessera::bench
