// The empty table of a build without the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rows.h"

namespace tessera::kernels {

const ElementwiseRows& elementwise_rows_sm90() {
  static constexpr ElementwiseRows kNone{};
  return kNone;
}

}  // namespace tessera::kernels
