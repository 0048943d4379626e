// How a public operation becomes a launch: check the arguments, find the row, run it.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/row.h"
#include "tessera/core/context.h"

namespace tessera::ops {

// All that dispatch knows of an operation. `check` throws on arguments no implementation may see;
// `rows_sm90` are preferred to `rows`, and within each the order is preference.
template <class Args>
struct Op {
  std::string_view name;
  void (*check)(const Args&);
  void (*cpu)(const Args&);
  std::span<const Row<Args>> rows_sm90;
  std::span<const Row<Args>> rows;
};

// Where the arguments live. Every tensor of a call is on one device; check has seen to it.
// The row that runs these (checked) arguments on a GPU, or null.
template <class Args>
const Row<Args>* find_row(const Op<Args>& op, const Args& args, Device device, const Context& ctx);

template <class Args>
void run(const Op<Args>& op, const Args& args, Device device, const Context& ctx);

template <class Args>
bool is_supported(const Op<Args>& op, const Args& args, Device device, const Context& ctx);

}  // namespace tessera::ops
