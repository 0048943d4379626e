// The rate of a large bf16 matrix product through cuBLASLt, loaded at run time.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tessera/core/device.h"

namespace tessera::bench {

// TFLOPS of an n x n x n product of bf16 matrices already in device memory (a, b, d: n * n each);
// 0, with the reason in `why`, where the library is missing or refuses.
double measure_matrix_tflops(Device device, int64_t n, const void* a, const void* b, void* d,
                             std::string& why);

}  // namespace tessera::bench
