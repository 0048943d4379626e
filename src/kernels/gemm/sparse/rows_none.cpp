// The empty table of a build without the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sparse/rows.h"

namespace tessera::kernels {

std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return {}; }

}  // namespace tessera::kernels
