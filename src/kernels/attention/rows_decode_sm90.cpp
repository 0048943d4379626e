// Decode attention's table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

namespace tessera::kernels {

std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() { return {}; }

}  // namespace tessera::kernels
