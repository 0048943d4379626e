// rope: what it takes, and where it runs.
// SPDX-License-Identifier: MIT
#include "tessera/ops/rope.h"

#include "core/text.h"
#include "cpu/elementwise.h"
#include "kernels/elementwise/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

// q or k: heads may lie anywhere, the elements of one head side by side.
void check_heads(const Named& heads, int64_t rotary_dim) {
  expect_rank(heads, 3);
  if (heads.view.size(2) > 1 && heads.view.stride(2) != 1) {
    fail(concat(heads.what, " is ", to_string(heads.view),
                "; the elements of a head must be contiguous: make them so with copy"));
  }
  if (rotary_dim > heads.view.size(2)) {
    fail(concat(heads.what, " has head_dim ", heads.view.size(2), " and the table rotates ",
                rotary_dim, "; make a table of at most head_dim"));
  }
  if (heads.view.size(1) * heads.view.size(2) > kMaxCols) {
    fail(concat(heads.what, " is ", to_string(heads.view), "; a token may have at most ", kMaxCols,
                " elements"));
  }
  expect_writable(heads);
}

void check_rope(const RopeArgs& args) {
  const Named q{"rope: q", args.q};
  const Named table{"rope: table", args.table};
  const Named positions{"rope: positions", args.positions};
  expect_tensor(q, kFloats);
  expect_tensor(table, {DType::f32}, q);
  expect_rank(table, 2);
  expect_contiguous(table);
  const int64_t rotary_dim = args.table.size(1);
  if (rotary_dim % 2 != 0) {
    fail(concat("rope: table is ", to_string(args.table),
                "; its width must be even, a cosine and a "
                "sine for each pair"));
  }
  check_heads(q, rotary_dim);
  if (args.k) {
    const Named k{"rope: k", *args.k};
    expect_tensor(k, kFloats, q);
    expect_dtype_of(k, q);
    check_heads(k, rotary_dim);
    if (args.k->size(0) != args.q.size(0) || args.k->size(2) != args.q.size(2)) {
      fail(concat("rope: k is ", to_string(*args.k), " and q is ", to_string(args.q),
                  "; they must agree in tokens and head_dim"));
    }
    expect_apart(k, q);
  }
  expect_tensor(positions, kIndices, q);
  expect_one_each(positions, args.q.size(0), "token of q");
}

const Op<RopeArgs>& rope_op() {
  static const Op<RopeArgs> op{"rope", &check_rope, &cpu::rope,
                               kernels::elementwise_rows_sm90().rope,
                               kernels::elementwise_rows().rope};
  return op;
}

}  // namespace

void rope(const RopeArgs& args, const Context& ctx) { run(rope_op(), args, args.q.device, ctx); }

bool supports(const RopeArgs& args, const Context& ctx) {
  return is_supported(rope_op(), args, args.q.device, ctx);
}

}  // namespace tessera
