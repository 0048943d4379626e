// The shapes of attention's problems.
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

std::vector<Shape> attention_test_shapes();
std::vector<Workload> attention_workloads();

}  // namespace tessera::bench
