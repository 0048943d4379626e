// The shapes of the matrix product's problems.
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

std::vector<Shape> gemm_test_shapes();
std::vector<Workload> gemm_workloads();

}  // namespace tessera::bench
