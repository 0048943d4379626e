// One decode step of attention: the newest token of every sequence goes into the KV cache, and its
// queries attend to what is there.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/kv_cache.h"

namespace tessera {

//   kv_append(append);  attention_decode(decode);
// with the same bits, in one kernel where there is one for it. Token i of `append` is the newest of
// sequence i of `decode`: slots[i] is where the page table has token seq_lens[i] - 1, and negative
// if seq_lens[i] is 0. No other sequence has that token among its own. Afterwards q and k may be
// rotated or as they were.
struct AppendAttentionArgs {
  KvAppendArgs append;         // rope.q is decode.q
  DecodeAttentionArgs decode;  // one token a sequence, over the pages that append writes
  // Nothing that is queued still writes what the call reads, except for q, k and v: a kernel may
  // then load older keys and values while the one in front of it, which makes these three, ends.
  bool is_settled = false;
};

void attention_append(const AppendAttentionArgs& args, const Context& ctx = {});
bool supports(const AppendAttentionArgs& args, const Context& ctx = {});

}  // namespace tessera
