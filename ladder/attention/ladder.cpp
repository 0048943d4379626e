// tessera_attention_ladder: checks the steps, times them full and causal, or runs one for ncu.
// SPDX-License-Identifier: MIT
#include <cstdio>
#include <iostream>

#include "bench/ceilings.h"
#include "ladder/attention/check.h"
#include "ladder/attention/steps.h"
#include "ladder/program.h"

namespace tessera::ladder::attention {
namespace {

constexpr int kBatch = 4;
constexpr int kHeads = 16;
constexpr Shape kCheckShape{2, 256, 3};  // every step accepts it

// Operands on the GPU, in kSets copies.
class Operands {
 public:
  explicit Operands(int seq) : seq_(seq) {
    const int64_t shape[] = {kBatch, seq, kHeads, kHeadDim};
    for (unsigned set = 0; set < kSets; ++set) {
      for (unsigned i = 0; i < 3; ++i) {
        inputs_.push_back(random_normal(DType::bf16, shape, 3 * set + i));
      }
      out_.emplace_back(DType::bf16, shape, cuda_device());
    }
  }

  Problem problem(int64_t set, bool is_causal) const {
    const auto i = static_cast<size_t>(set % kSets);
    const auto input = [&](size_t which) { return inputs_[3 * i + which].view().as<Bf16>(); };
    return {input(0), input(1), input(2), out_[i].view().as<Bf16>(),
            kBatch,   seq_,     kHeads,   is_causal};
  }

 private:
  int seq_;
  std::vector<Tensor> inputs_;  // q, k, v, q, k, v
  std::vector<Tensor> out_;
};

// Two products of 2 * kHeadDim flop a score. Causal counts the scores that are seen.
double flops(int seq, bool is_causal) {
  const double n = seq;
  const double scores = kBatch * kHeads * (is_causal ? n * (n + 1) / 2 : n * n);
  return 4 * kHeadDim * scores;
}

std::string check(const Step& step) {
  for (const bool is_causal : {false, true}) {
    const std::string wrong = check_close(step, kCheckShape, is_causal);
    if (!wrong.empty()) return (is_causal ? "causal: " : "full: ") + wrong;
  }
  return {};
}

int check_all(const Options& options) {
  int num_wrong = 0;
  for (const Step& step : chosen_steps(steps(), options)) {
    const std::string why = missing(step);
    const std::string wrong = why.empty() ? check(step) : "";
    std::cout << step.name << ": "
              << (!why.empty() ? "skipped, " + why : (wrong.empty() ? "within bounds" : wrong))
              << "\n";
    num_wrong += !wrong.empty();
  }
  return num_wrong == 0 ? 0 : 1;
}

Timing time_step(const Step& step, const Operands& operands, bool is_causal) {
  const Tensor scratch = make_scratch(step, operands.problem(0, is_causal));
  return time_call([&](int64_t i, const Context& ctx) {
    run(step, with_scratch(operands.problem(i, is_causal), scratch), ctx);
  });
}

// `product` is the rate of a large matrix product in the same run, in TFLOPS; 0: unknown.
Json time_result(const Step& step, const Operands& operands, int seq, double product) {
  const Timing full = time_step(step, operands, false);
  const Timing causal = time_step(step, operands, true);
  const double rate = tflops(flops(seq, false), full.us);
  const double causal_rate = tflops(flops(seq, true), causal.us);
  Json result{{"step", step.name}, {"dtype", "bf16"}};
  result.update(timing_json(full, flops(seq, false)));
  result["percent_of_product"] = product > 0 ? Json(rounded(100 * rate / product)) : Json(nullptr);
  result["causal"] = timing_json(causal, flops(seq, true));
  std::printf("%-18s full %12.2f us %8.2f TFLOPS   causal %12.2f us %8.2f TFLOPS\n",
              step.name.data(), full.us, rate, causal.us, causal_rate);
  return result;
}

int time_all(const Options& options) {
  const double product = bench::measure_ceilings(cuda_device()).bf16_tflops;
  const Operands operands(options.size);
  Json json = machine_json();
  json["size"] = options.size;
  json["batch"] = kBatch;
  json["heads"] = kHeads;
  json["product_tflops"] = product > 0 ? Json(rounded(product)) : Json(nullptr);
  json["steps"] = Json::array();
  int num_wrong = 0;
  for (const Step& step : chosen_steps(steps(), options)) {
    const std::string why = missing(step);
    if (!why.empty()) {
      std::cout << step.name << ": skipped, " << why << "\n";
      continue;
    }
    const std::string wrong = check(step);
    if (!wrong.empty()) {
      std::cout << step.name << ": not timed, it is wrong: " << wrong << "\n";
      ++num_wrong;
      continue;
    }
    json["steps"].push_back(time_result(step, operands, options.size, product));
  }
  write_json(json, options.json_path);
  return num_wrong == 0 ? 0 : 1;
}

int run_once(const Options& options) {
  const Operands operands(options.size);
  const Problem problem = operands.problem(0, false);
  for (const Step& step : chosen_steps(steps(), options)) {
    const std::string why = missing(step);
    if (!why.empty()) {
      std::cout << step.name << ": skipped, " << why << "\n";
      continue;
    }
    const Tensor scratch = make_scratch(step, problem);
    run(step, with_scratch(problem, scratch), {});
    synchronize(cuda_device());
  }
  return 0;
}

int list_steps(const Options& options) {
  for (const Step& step : chosen_steps(steps(), options)) {
    std::cout << step.name << " bf16 ladder/attention/" << step.file << " multiples of "
              << step.multiple << "\n";
  }
  return 0;
}

constexpr Program kProgram{
    .about = "The attention ladder: check, time or run its steps on the first GPU.",
    .check_help = "hold every step to the CPU, within bounds",
    .time_help = "time every step, full and causal",
    .size_help = "tokens a sequence of --time and --once",
    .check = &check_all,
    .time = &time_all,
    .once = &run_once,
    .list = &list_steps,
};

}  // namespace
}  // namespace tessera::ladder::attention

int main(int argc, char** argv) {
  return tessera::ladder::run_program(tessera::ladder::attention::kProgram, argc, argv);
}
