// attention_cascade as the three calls it consists of.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/ops/attention.h"

namespace tessera::ops {

struct CascadeCalls {
  AttentionArgs shared;     // every query over every piece
  DecodeAttentionArgs own;  // as given, but into the last part
  MergeAttentionArgs merge;
};

// Of arguments that check_attention_cascade would not refuse for what they are to each other.
CascadeCalls cascade_calls(const CascadeAttentionArgs& args);

void check_attention_merge(const MergeAttentionArgs& args);
void check_attention_cascade(const CascadeAttentionArgs& args);

}  // namespace tessera::ops
