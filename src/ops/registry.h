// Every row of every operation, as data: what tests, benches and documents walk.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/row.h"
#include "tessera/ops/gemm.h"

namespace tessera::ops {

struct RowInfo {
  std::string_view family;  // "elementwise", "gemm", "attention", "kv"
  std::string_view op;      // "rms_norm"
  std::string name;         // "rms_norm_sm90_bf16_e4m3"
  Library library;
  RowKey key;
  bool is_batch_invariant;
};

// In table order: by family, operation, then table with the preferred one first.
std::vector<RowInfo> all_rows();

// The name of the row that runs a product on a GPU; empty: none. Only the matrix product has rows
// that yield, so that the first row that takes the arguments may not be the one that runs.
std::string served_row(const GemmArgs& args, const Context& ctx = {});

}  // namespace tessera::ops
