// The ladder's problem as arguments of the library's attention_prefill, and a row of it by name.
// SPDX-License-Identifier: MIT
#pragma once

#include "ladder/attention/steps.h"
#include "tessera/ops/attention.h"

namespace tessera::ladder::attention {

inline AttentionArgs attention_args(const Problem& p, Device device) {
  const auto view = [&](const Bf16* data) {
    return TensorView::contiguous(const_cast<Bf16*>(data), DType::bf16,
                                  {p.batch, p.seq, p.heads, kHeadDim}, device);
  };
  AttentionArgs args;
  args.q = view(p.q);
  args.k = view(p.k);
  args.v = view(p.v);
  args.out = view(p.out);
  if (p.is_causal) args.mask = kCausalMask;
  return args;
}

inline void run_row(std::string_view row, const Problem& problem, const Context& ctx) {
  attention_prefill(attention_args(problem, cuda_device()), {.stream = ctx.stream, .row = row});
}

// Whether this build has the row and this GPU runs it.
inline bool has_row(std::string_view row) {
  constexpr int kSeq = 64;
  const Tensor memory(DType::bf16, {4, kSeq, kHeadDim}, cuda_device());
  Bf16* data = memory.view().as<Bf16>();
  constexpr int64_t kEach = kSeq * kHeadDim;
  const Problem problem{data, data + kEach, data + 2 * kEach, data + 3 * kEach, 1, kSeq, 1, false};
  return supports(attention_args(problem, cuda_device()), {.stream = nullptr, .row = row});
}

}  // namespace tessera::ladder::attention
