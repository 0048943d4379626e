// Options, operands, timing and the file of results.
// SPDX-License-Identifier: MIT
#include "ladder/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <random>

#include "bench/bench.h"
#include "core/build_info.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::ladder {
namespace {

// Repeats a pool of odd length, because computing 50 million values takes longer than timing.
template <class T>
void fill_normal(T* values, size_t count, unsigned seed) {
  constexpr size_t kPool = (1 << 18) + 3;
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> pool(kPool);
  for (T& value : pool) value = from_float<T>(normal(generator));
  for (size_t i = 0; i < count; i += kPool) {
    std::copy_n(pool.begin(), std::min(kPool, count - i), values + i);
  }
}

int run_mode(const Program& program, const Options& options) {
  if (options.is_list) return program.list(options);
  if (num_cuda_devices() == 0) fail("ladder: no CUDA device on this machine; --list needs none");
  if (options.is_check) return program.check(options);
  if (options.is_once) return program.once(options);
  return program.time(options);
}

}  // namespace

int run_program(const Program& program, int argc, char** argv) {
  Options options;
  CLI::App app(program.about);
  auto* modes = app.add_option_group("mode");
  modes->add_flag("--check", options.is_check, program.check_help);
  modes->add_flag("--time", options.is_time, program.time_help);
  modes->add_flag("--once", options.is_once, "run once, for a profiler");
  modes->add_flag("--list", options.is_list, "name the steps");
  modes->require_option(1);
  app.add_option("--size", options.size, program.size_help)->check(CLI::Range(256, 32768));
  app.add_option("--step", options.step, "only this step");
  app.add_option("--json", options.json_path, "where --time writes its results");
  app.set_version_flag("--version", kCommit);  // for tools/ladder_ncu.sh
  CLI11_PARSE(app, argc, argv);
  try {
    return run_mode(program, options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

Tensor random_normal(DType dtype, std::span<const int64_t> shape, unsigned seed) {
  const Tensor host(dtype, shape);
  const auto count = static_cast<size_t>(host.view().num_elements());
  if (dtype == DType::f32) {
    fill_normal(host.view().as<float>(), count, seed);
  } else {
    fill_normal(host.view().as<Bf16>(), count, seed);
  }
  return host.to(cuda_device());
}

// Few replays of a slow call, many of a quick one. The first call is made outside any graph,
// because it may prepare things once; then the GPU is brought to its working temperature and clock.
Timing time_call(const bench::Call& call) {
  constexpr double kBatchUs = 10e3;
  constexpr double kWarmUs = 500e3;
  constexpr double kTimedUs = 300e3;
  const Device gpu = cuda_device();
  call(0, Context{});
  synchronize(gpu);
  const double one_us = std::max(bench::make_batch(gpu, 1, call)->run(1).back(), 1.0);
  const int64_t num_calls =
      kSets * static_cast<int64_t>(std::clamp(kBatchUs / one_us / kSets, 1.0, 20.0));
  const double batch_us = one_us * static_cast<double>(num_calls);
  const auto batches_in = [&](double us, double least) {
    return static_cast<int>(std::clamp(us / batch_us, least, 100.0));
  };
  const auto batch = bench::make_batch(gpu, num_calls, call);
  batch->run(batches_in(kWarmUs, 1));
  std::vector<double> times = batch->run(batches_in(kTimedUs, 3));
  for (double& time : times) time /= static_cast<double>(num_calls);
  return {bench::percentile(times, 0.5), bench::percentile(times, 0.1),
          bench::percentile(times, 0.9)};
}

double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

double tflops(double flops, double us) { return flops / us * 1e-6; }

Json timing_json(const Timing& timing, double flops) {
  return {{"us", rounded(timing.us)},
          {"p10", rounded(timing.p10)},
          {"p90", rounded(timing.p90)},
          {"tflops", rounded(tflops(flops, timing.us))}};
}

Json machine_json() {
  const bench::Machine machine = bench::describe_machine(cuda_device());
  return {{"gpu", machine.gpu},
          {"driver", machine.driver},
          {"cuda", machine.cuda},
          {"commit", machine.commit},
          {"date", machine.date}};
}

void write_json(const Json& json, const std::string& path) {
  if (path.empty()) return;
  std::ofstream file(path);
  file << json.dump(1) << "\n";
  if (!file.flush()) fail(concat("ladder: could not write ", path));
}

}  // namespace tessera::ladder
