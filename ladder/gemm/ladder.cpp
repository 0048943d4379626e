// tessera_ladder: checks the steps of the ladder, times them beside cuBLAS, or runs one for ncu.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstdio>
#include <iostream>

#include "ladder/gemm/check.h"
#include "ladder/gemm/steps.h"
#include "ladder/program.h"

namespace tessera::ladder {
namespace {

constexpr int kCheckSize = 256;  // every step accepts it

// Square operands on the GPU, in kSets copies.
class Matrices {
 public:
  Matrices(DType dtype, int size) : size_(size) {
    const int64_t shape[] = {size, size};
    for (unsigned set = 0; set < kSets; ++set) {
      a_.push_back(random_normal(dtype, shape, 2 * set));
      b_.push_back(random_normal(dtype, shape, 2 * set + 1));
      d_.emplace_back(dtype, shape, cuda_device());
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

double flops(int size) { return 2 * std::pow(size, 3); }

int check_all(const Options& options) {
  int num_wrong = 0;
  for (const Step& step : chosen_steps(steps(), options)) {
    const std::string why = missing(step);
    const std::string wrong =
        why.empty() ? check_exact(step, kCheckSize, kCheckSize, kCheckSize) : "";
    std::cout << step.name << ": "
              << (!why.empty() ? "skipped, " + why : (wrong.empty() ? "exact" : wrong)) << "\n";
    num_wrong += !wrong.empty();
  }
  return num_wrong == 0 ? 0 : 1;
}

// The steps of one type with cuBLAS before and after them; the quicker of the two is the measure.
int time_track(const Options& options, DType dtype, Json& json) {
  std::vector<Step> track = chosen_steps(steps(), options);
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
    json["cublas"][std::string(name(dtype))] = timing_json(cublas, flops(options.size));
  }
  for (const auto& [step, timing] : timings) {
    Json result{{"step", step.name}, {"dtype", name(dtype)}};
    result.update(timing_json(timing, flops(options.size)));
    const double percent = is_compared ? 100 * cublas.us / timing.us : 0;
    result["percent_of_cublas"] = is_compared ? Json(rounded(percent)) : Json(nullptr);
    json["steps"].push_back(result);
    std::printf("%-22s %-5s %12.2f us %9.2f TFLOPS %8.2f %% of cuBLAS\n", step.name.data(),
                name(dtype).data(), timing.us, tflops(flops(options.size), timing.us), percent);
  }
  return num_wrong;
}

int time_all(const Options& options) {
  Json json = machine_json();
  json["size"] = options.size;
  json["cublas"] = Json::object();
  json["steps"] = Json::array();
  int num_wrong = 0;
  for (const DType dtype : {DType::f32, DType::bf16}) num_wrong += time_track(options, dtype, json);
  write_json(json, options.json_path);
  return num_wrong == 0 ? 0 : 1;
}

int run_once(const Options& options) {
  for (const Step& step : chosen_steps(steps(), options)) {
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
  for (const Step& step : chosen_steps(steps(), options)) {
    const Multiples& of = step.multiples;
    std::cout << step.name << " " << name(step.dtype) << " ladder/gemm/" << step.file
              << " multiples of " << of.m << "x" << of.n << "x" << of.k << "\n";
  }
  return 0;
}

constexpr Program kProgram{
    .about = "The GEMM ladder: check, time or run its steps on the first GPU.",
    .check_help = "hold every step to the CPU, bit for bit",
    .time_help = "time every step beside cuBLAS",
    .size_help = "m, n and k of --time and --once",
    .check = &check_all,
    .time = &time_all,
    .once = &run_once,
    .list = &list_steps,
};

}  // namespace
}  // namespace tessera::ladder

int main(int argc, char** argv) {
  return tessera::ladder::run_program(tessera::ladder::kProgram, argc, argv);
}
