// The elementwise table of the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/table.h"

namespace tessera::kernels {

const ElementwiseRows& elementwise_rows() { return ElementwiseTable<Portable>::rows; }

}  // namespace tessera::kernels
