// The empty table of a build without the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rows.h"

namespace tessera::kernels {

const ElementwiseRows& elementwise_rows() {
  static constexpr ElementwiseRows kNone{};
  return kNone;
}

}  // namespace tessera::kernels
