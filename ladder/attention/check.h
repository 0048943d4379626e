// Compares a step with the CPU on random data, for `--check` and the tests.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "ladder/attention/steps.h"

namespace tessera::ladder::attention {

struct Shape {
  int batch;
  int seq;
  int heads;
};

// Runs the step on normal values and compares with attention_prefill on the CPU, within a bound
// derived in check.cpp. The output starts as NaN and lies between guards. Returns "" or the number
// of elements beyond the bound and the worst of them; throws if the launch fails.
std::string check_close(const Step& step, const Shape& shape, bool is_causal);

}  // namespace tessera::ladder::attention
