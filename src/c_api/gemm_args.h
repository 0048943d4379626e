// The struct of a matrix product in C as its C++ twin.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/c.h"
#include "tessera/ops/gemm.h"

namespace tessera::c_api {

// Refuses what tessera_gemm_weight refuses before it runs. (weights.cpp)
GemmArgs read_gemm_args(const TesseraGemmArgs* c);

}  // namespace tessera::c_api
