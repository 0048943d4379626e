// Decode attention's table of the portable library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_portable/launch.h"
#include "kernels/attention/decode_portable/params.h"
#include "kernels/attention/rows.h"

namespace tessera::kernels {
namespace {

// Heads that fit the kernel, and counts that fit into its 32 bits: keys into 30, so that the reach
// of a window fits beside them.
bool accepts(const DecodeAttentionArgs& args) {
  const int64_t num_keys = args.keys.rank == 3 ? args.keys.size(2) : 0;
  const int64_t num_blocks = args.blocks.rank == 2 ? args.blocks.size(1) : 0;
  const int64_t num_rows = args.q.size(0) * q_len_of(args) * args.q.size(-2);
  return args.q.size(-1) <= kDecodeMostDim && capacity_of(args) <= kUnbounded &&
         num_keys <= kUnbounded && num_blocks <= kUnbounded && num_rows <= kUnbounded;
}

template <class T>
constexpr Row<DecodeAttentionArgs> row() {
  return {"attention_decode",
          Library::portable,
          {dtype_of<T>, dtype_of<T>},
          &launch_attention_decode<T>,
          {},
          &accepts};
}

constexpr Row<DecodeAttentionArgs> kRows[] = {row<Bf16>(), row<F16>(), row<float>()};

}  // namespace

std::span<const Row<DecodeAttentionArgs>> attention_decode_rows() { return kRows; }

}  // namespace tessera::kernels
