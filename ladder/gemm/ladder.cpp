// tessera_ladder: checks the steps of the ladder, times them beside cuBLAS, or runs one for ncu.
// SPDX-License-Identifier: MIT
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "bench/bench.h"
#include "bench/timer.h"
#include "core/text.h"
#include "ladder/gemm/check.h"
#include "ladder/gemm/steps.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::ladder {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCheckSize = 256;  // every step accepts it
constexpr int kSets = 2;         // copies of the operands in turn: no call finds its own in L2

struct Options {
  bool is_check = false;
  bool is_time = false;
  bool is_once = false;
  bool is_list = false;
  int size = 4096;
  std::string step;  // empty: all
  std::string json_path;
};

std::vector<Step> chosen_steps(const Options& options) {
  if (!options.step.empty()) return {find_step(options.step)};
  return {steps().begin(), steps().end()};
}

// Random normal values: a GPU that multiplies zeros draws less power and clocks higher. A pool is
// repeated at an odd length, because making 50 million of them takes longer than the timing.
template <class T>
Tensor random_matrix(DType dtype, int size, unsigned seed) {
  constexpr size_t kPool = (1 << 18) + 3;
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<T> pool(kPool);
  for (T& value : pool) value = from_float<T>(normal(generator));
  const Tensor host(dtype, {size, size});
  const auto count = static_cast<size_t>(host.view().num_elements());
  T* values = host.view().as<T>();
  for (size_t i = 0; i < count; i += kPool) {
    std::copy_n(pool.begin(), std::min(kPool, count - i), values + i);
  }
  return host.to(cuda_device());
}

// Square operands on the GPU, in kSets copies.
class Matrices {
 public:
  Matrices(DType dtype, int size) : size_(size) {
    for (unsigned set = 0; set < kSets; ++set) {
      const bool is_f32 = dtype == DType::f32;
      a_.push_back(is_f32 ? random_matrix<float>(dtype, size, 2 * set)
                          : random_matrix<Bf16>(dtype, size, 2 * set));
      b_.push_back(is_f32 ? random_matrix<float>(dtype, size, 2 * set + 1)
                          : random_matrix<Bf16>(dtype, size, 2 * set + 1));
      d_.emplace_back(dtype, std::initializer_list<int64_t>{size, size}, cuda_device());
    }
  }

  Problem problem(int64_t set) const {
    const auto i = static_cast<size_t>(set % kSets);
    return {a_[i].view().data, b_[i].view().data, d_[i].view().data, size_, size_, size_};
  }

 private:
  int size_;
  std::vector<Tensor> a_;
  std::vector<Tensor> b_;
  std::vector<Tensor> d_;
};

struct Timing {
  double us = 0;
  double p10 = 0;
  double p90 = 0;
};

// Few replays of a slow call, many of a quick one. The first call is made outside of any graph, so
// that what is prepared once is; then the GPU is brought to its working temperature and clock.
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

double tflops(int size, double us) { return 2 * std::pow(size, 3) / us * 1e-6; }

// Four significant digits: the rest is noise.
double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

int check_all(const Options& options) {
  int num_wrong = 0;
  for (const Step& step : chosen_steps(options)) {
    const std::string why = missing(step);
    const std::string wrong =
        why.empty() ? check_exact(step, kCheckSize, kCheckSize, kCheckSize) : "";
    std::cout << step.name << ": "
              << (!why.empty() ? "skipped, " + why : (wrong.empty() ? "exact" : wrong)) << "\n";
    num_wrong += !wrong.empty();
  }
  return num_wrong == 0 ? 0 : 1;
}

Json timing_json(const Timing& timing, int size) {
  return {{"us", rounded(timing.us)},
          {"p10", rounded(timing.p10)},
          {"p90", rounded(timing.p90)},
          {"tflops", rounded(tflops(size, timing.us))}};
}

// The steps of one type with cuBLAS before and after them; the quicker of the two is the measure.
int time_track(const Options& options, DType dtype, Json& json) {
  std::vector<Step> track = chosen_steps(options);
  std::erase_if(track, [&](const Step& step) { return step.dtype != dtype; });
  if (track.empty()) return 0;
  const Matrices matrices(dtype, options.size);
  const auto time_cublas = [&] {
    return time_call(
        [&](int64_t i, const Context& ctx) { run_cublas(dtype, matrices.problem(i), ctx); });
  };
  const bool is_compared = has_cublas(dtype, matrices.problem(0));
  Timing cublas = is_compared ? time_cublas() : Timing{};
  std::vector<std::pair<Step, Timing>> timings;
  int num_wrong = 0;
  for (const Step& step : track) {
    const std::string why = missing(step);
    if (!why.empty()) {
      std::cout << step.name << ": skipped, " << why << "\n";
      continue;
    }
    const std::string wrong = check_exact(step, kCheckSize, kCheckSize, kCheckSize);
    if (!wrong.empty()) {
      std::cout << step.name << ": not timed, it is wrong: " << wrong << "\n";
      ++num_wrong;
      continue;
    }
    timings.emplace_back(step, time_call([&](int64_t i, const Context& ctx) {
                           run(step, matrices.problem(i), ctx);
                         }));
  }
  if (is_compared) {
    const Timing again = time_cublas();
    if (again.us < cublas.us) cublas = again;
    json["cublas"][std::string(name(dtype))] = timing_json(cublas, options.size);
  }
  for (const auto& [step, timing] : timings) {
    Json result{{"step", step.name}, {"dtype", name(dtype)}};
    result.update(timing_json(timing, options.size));
    const double percent = is_compared ? 100 * cublas.us / timing.us : 0;
    result["percent_of_cublas"] = is_compared ? Json(rounded(percent)) : Json(nullptr);
    json["steps"].push_back(result);
    std::printf("%-22s %-5s %12.2f us %9.2f TFLOPS %8.2f %% of cuBLAS\n", step.name.data(),
                name(dtype).data(), timing.us, tflops(options.size, timing.us), percent);
  }
  return num_wrong;
}

int time_all(const Options& options) {
  Json json;
  const bench::Machine machine = bench::describe_machine(cuda_device());
  json["gpu"] = machine.gpu;
  json["driver"] = machine.driver;
  json["cuda"] = machine.cuda;
  json["commit"] = machine.commit;
  json["date"] = machine.date;
  json["size"] = options.size;
  json["cublas"] = Json::object();
  json["steps"] = Json::array();
  int num_wrong = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) num_wrong += time_track(options, dtype, json);
  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    file << json.dump(1) << "\n";
    if (!file.flush()) fail(concat("ladder: could not write ", options.json_path));
  }
  return num_wrong == 0 ? 0 : 1;
}

int run_once(const Options& options) {
  for (const Step& step : chosen_steps(options)) {
    const Matrices matrices(step.dtype, options.size);
    const std::string why = missing(step);
    if (!why.empty()) {
      std::cout << step.name << ": skipped, " << why << "\n";
      continue;
    }
    run(step, matrices.problem(0), Context{});
    synchronize(cuda_device());
  }
  return 0;
}

int list_steps(const Options& options) {
  for (const Step& step : chosen_steps(options)) {
    const Multiples& of = step.multiples;
    std::cout << step.name << " " << name(step.dtype) << " ladder/gemm/" << step.file
              << " multiples of " << of.m << "x" << of.n << "x" << of.k << "\n";
  }
  return 0;
}

int main_of(const Options& options) {
  if (options.is_list) return list_steps(options);
  if (num_cuda_devices() == 0) fail("ladder: no CUDA device on this machine; --list needs none");
  if (options.is_check) return check_all(options);
  if (options.is_once) return run_once(options);
  return time_all(options);
}

}  // namespace
}  // namespace tessera::ladder

int main(int argc, char** argv) {
  tessera::ladder::Options options;
  CLI::App app("The GEMM ladder: check, time or run its steps on the first GPU.");
  auto* modes = app.add_option_group("mode");
  modes->add_flag("--check", options.is_check, "hold every step to the CPU, bit for bit");
  modes->add_flag("--time", options.is_time, "time every step beside cuBLAS");
  modes->add_flag("--once", options.is_once, "run once, for a profiler");
  modes->add_flag("--list", options.is_list, "name the steps");
  modes->require_option(1);
  app.add_option("--size", options.size, "m, n and k of --time and --once")
      ->check(CLI::Range(256, 32768));
  app.add_option("--step", options.step, "only this step");
  app.add_option("--json", options.json_path, "where --time writes its results");
  CLI11_PARSE(app, argc, argv);
  try {
    return tessera::ladder::main_of(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
