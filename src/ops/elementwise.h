// How an elementwise operation is put together: its check, its CPU form and its rows.
// SPDX-License-Identifier: MIT
#pragma once

#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera::ops {

template <class Args>
Op<Args> elementwise_op(std::string_view name, void (*check)(const Args&), void (*cpu)(const Args&),
                        std::span<const Row<Args>> kernels::ElementwiseRows::*rows) {
  return {name, check, cpu, kernels::elementwise_rows_sm90().*rows,
          kernels::elementwise_rows().*rows};
}

}  // namespace tessera::ops
