// attention_append on Hopper: the decode kernel with the newest token of every sequence still on
// its way into the cache.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/kernel.cuh"

namespace tessera::kernels::decode_sm90 {

inline NewestParams newest_params(const AppendAttentionArgs& args) {
  const KvAppendArgs& append = args.append;
  const auto of_tokens = [](const TensorView& t) {
    return RowStrides{t.stride(0), 0, t.stride(1)};
  };
  const auto of_pages = [](const TensorView& t) {
    return RowStrides{t.stride(0), t.stride(1), t.stride(2)};
  };
  return {.k = append.k.data,
          .v = append.v.data,
          .k_strides = of_tokens(append.k),
          .v_strides = of_tokens(append.v),
          .k_pages = append.k_pages.data,
          .v_pages = append.v_pages.data,
          .k_page_strides = of_pages(append.k_pages),
          .v_page_strides = of_pages(append.v_pages),
          .num_pages = static_cast<int>(append.k_pages.size(0)),
          .positions = append.rope->positions.data,
          .table = append.rope->table.as<const float>(),
          .num_positions = append.rope->table.size(0),
          .has_long_positions = append.rope->positions.dtype == DType::i64,
          .is_settled = args.is_settled};
}

template <class Q, int kD>
void launch_append(const AppendAttentionArgs& args, const Context& ctx) {
  launch_planned<Q, KvFormat::plain, kD, true>(args.decode, newest_params(args), ctx);
}

}  // namespace tessera::kernels::decode_sm90
