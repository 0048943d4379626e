// The empty table of a build without the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

namespace tessera::kernels {

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return {}; }

}  // namespace tessera::kernels
