// The three calls that make up attention_cascade.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/attention.h"

namespace tessera::ops {

struct CascadeCalls {
  AttentionArgs shared;     // every query over every piece
  DecodeAttentionArgs own;  // as given, but written to the last part
  MergeAttentionArgs merge;
};

// The arguments must have passed check_attention_cascade.
CascadeCalls cascade_calls(const CascadeAttentionArgs& args);

void check_attention_merge(const MergeAttentionArgs& args);
void check_attention_cascade(const CascadeAttentionArgs& args);

}  // namespace tessera::ops
