// 2:4 sparsity on the CPU: pruning, its inverse, and the oracle of the product. Arguments have been
// checked by src/ops; every tensor is in CPU memory.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/sparse.h"

namespace tessera::cpu {

void prune_2_4(const Prune24Args& args);
void expand_2_4(const Expand24Args& args);
// Expands w, then the dense product.
void gemm_2_4(const Gemm24Args& args);

}  // namespace tessera::cpu
