// Compares a step with the CPU on small integers, for `--check` and the tests.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "ladder/gemm/steps.h"

namespace tessera::ladder {

// Runs the step on integers in [-4, 4], where every sum is exact in f32 whatever its order and both
// sides round once, so the answer must match bit for bit. The output starts as NaN and lies between
// guards. Returns "" or the first difference; throws if the launch fails.
std::string check_exact(const Step& step, int m, int n, int k);

}  // namespace tessera::ladder
