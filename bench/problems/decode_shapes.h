// The shapes of decode attention's problems.
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "bench/problem.h"

namespace tessera::bench {

std::vector<Shape> decode_test_shapes();  // includes the next ones
std::vector<Shape> decode_plan_shapes();  // that exercise the plans of the Hopper kernel
std::vector<Workload> decode_workloads();

}  // namespace tessera::bench
