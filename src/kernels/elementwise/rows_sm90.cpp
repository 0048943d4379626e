// The elementwise table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/table.h"

namespace tessera::kernels {

const ElementwiseRows& elementwise_rows_sm90() { return ElementwiseTable<Sm90>::rows; }

}  // namespace tessera::kernels
