// Decode attention's table of the portable library, and what its rows accept.
// SPDX-License-Identifier: MIT
#include "kernels/attention/rows.h"

#include "kernels/attention/decode/portable/params.h"
#include "kernels/with_constant.h"

namespace tessera::kernels {
namespace decode_portable {
namespace {

// Heads that fit the kernel, and counts that fit into 32 bits: keys into 30, so that the reach of a
// window fits too.
bool accepts(const DecodeAttentionArgs& args) {
  const int64_t num_keys = args.keys.rank == 3 ? args.keys.size(2) : 0;
  const int64_t num_blocks = args.blocks.rank == 2 ? args.blocks.size(1) : 0;
  const int64_t num_rows = args.q.size(0) * q_len_of(args) * args.q.size(-2);
  return args.q.size(-1) <= kDecodeMostDim && capacity_of(args) <= kUnbounded &&
         num_keys <= kUnbounded && num_blocks <= kUnbounded && num_rows <= kUnbounded;
}

template <class T>
void launch_any(const DecodeAttentionArgs& args, const Context& ctx) {
  if (args.q.num_elements() == 0) return;
  const int num_rows = q_len_of(args) * group_of(args) <= 4 ? 4 : 8;
  with_constant<4, 8>(num_rows, [&](auto rows) { launch_decode<T, rows()>(args, ctx); });
}

template <class T>
constexpr Row<DecodeAttentionArgs> row() {
  return {"attention_decode",
          Library::portable,
          {dtype_of<T>, dtype_of<T>},
          &launch_any<T>,
          {},
          &accepts};
}

constexpr Row<DecodeAttentionArgs> kRows[] = {row<Bf16>(), row<F16>(), row<float>()};

}  // namespace
}  // namespace decode_portable

std::span<const Row<DecodeAttentionArgs>> attention_decode_rows() { return decode_portable::kRows; }

}  // namespace tessera::kernels
