// The empty table of a build without the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

namespace tessera::kernels {

std::span<const Row<GemmArgs>> gemm_rows() { return {}; }

}  // namespace tessera::kernels
