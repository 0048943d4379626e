// What tests of attention's problems ask of operands and results.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "bench/problem.h"
#include "bench/verify.h"

namespace tessera::bench {

inline const Operand* find(const Problem& problem, std::string_view name) {
  for (const Operand& operand : problem.operands) {
    if (operand.name == name) return &operand;
  }
  return nullptr;
}

// Integers: a query gives the value of one key, or the mean of a power of two of them. Without
// slopes the logarithm of its sum is then that of the power, to the last bits. Adds to
// `num_checked` how many queries saw a key.
inline void expect_powers_of_two(const Problem& problem, int& num_checked) {
  constexpr double kMostLog2 = 16;  // of the keys that small shapes have
  const std::vector<Tensor> result = run_on_cpu(problem);
  for (size_t i = 0; i < result.size(); ++i) {
    if (problem.operands[i].name != "lse") continue;
    const TensorView lse = result[i];
    for (int64_t j = 0; j < lse.num_elements(); ++j) {
      const float value = lse.as<float>()[j];
      if (value < -30) continue;  // no key: minus infinity, or a sink
      const double power = value / std::log(2.0);
      ASSERT_NEAR(power, std::round(power), 1e-5) << j;
      ASSERT_LE(power, kMostLog2) << j;
      ++num_checked;
    }
  }
}

}  // namespace tessera::bench
