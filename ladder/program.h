// What the ladders' programs share: options, operands, timing and the file of results.
// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/timer.h"
#include "ladder/steps.h"
#include "tessera/core/tensor.h"

namespace tessera::ladder {

using Json = nlohmann::ordered_json;

inline constexpr int kSets = 2;  // copies of the operands in turn: no call finds its own in L2

struct Options {
  bool is_check = false;
  bool is_time = false;
  bool is_once = false;
  bool is_list = false;
  int size = 4096;
  std::string step;  // empty: all
  std::string json_path;
};

// A ladder as its program sees it. Each mode gives the exit status.
struct Program {
  const char* about;  // the first line of --help
  const char* check_help;
  const char* time_help;
  const char* size_help;
  int (*check)(const Options&);
  int (*time)(const Options&);
  int (*once)(const Options&);
  int (*list)(const Options&);  // the only one that needs no GPU
};
int run_program(const Program& program, int argc, char** argv);

template <class Step>
std::vector<Step> chosen_steps(std::span<const Step> steps, const Options& options) {
  if (!options.step.empty()) return {find_by_name(steps, options.step)};
  return {steps.begin(), steps.end()};
}

// Random normal values on the GPU, f32 or bf16: a GPU that multiplies zeros draws less power and
// clocks higher.
Tensor random_normal(DType dtype, std::span<const int64_t> shape, unsigned seed);

struct Timing {
  double us = 0;
  double p10 = 0;
  double p90 = 0;
};
// `call` walks kSets sets of operands by its index.
Timing time_call(const bench::Call& call);

double rounded(double value);  // to four significant digits: the rest is noise
double tflops(double flops, double us);
Json timing_json(const Timing& timing, double flops);
// GPU, driver, CUDA, commit and date.
Json machine_json();
// Does nothing without a path.
void write_json(const Json& json, const std::string& path);

}  // namespace tessera::ladder
