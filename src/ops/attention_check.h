// What attention requires of its arguments, apart from the contents of tensors.
// SPDX-License-Identifier: MIT
#pragma once

#include "ops/check.h"
#include "tessera/ops/attention.h"

namespace tessera::ops {

void check_attention(const AttentionArgs& args);
void check_attention_decode(const DecodeAttentionArgs& args);

}  // namespace tessera::ops
