// The empty table of a build without the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

namespace tessera::kernels {

std::span<const Row<AttentionArgs>> attention_prefill_rows_sm90() { return {}; }

}  // namespace tessera::kernels
