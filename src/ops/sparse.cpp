// gemm_2_4 and the pruning before it: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/sparse.h"

#include "core/text.h"
#include "cpu/gemm.h"
#include "kernels/gemm/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"

namespace tessera {
namespace {

using namespace ops;

constexpr DTypeSet kSparseTypes = {DType::f16, DType::bf16};

void expect_matrix(const Named& tensor) {
  expect_rank(tensor, 2);
  expect_rows(tensor);
}

// Values and meta of a weight [n, k], beside a `first` tensor that has been checked.
void expect_pruned(const Named& values, const Named& meta, const Named& first, int64_t n,
                   int64_t k) {
  if (k % kSparseBlock != 0) {
    fail(concat(first.what, " is ", to_string(first.view), "; k must be a multiple of ",
                kSparseBlock, ": pad the weight with zeros"));
  }
  expect_tensor(values, kSparseTypes, first);
  expect_dtype_of(values, first);
  expect_contiguous(values);
  expect_tensor(meta, {DType::i32}, first);
  expect_contiguous(meta);
  const int64_t want_values[] = {n, k / 2};
  const int64_t want_meta[] = {(n + kSparseBlock - 1) / kSparseBlock, k / kSparseBlock,
                               kSparseBlock};
  if (!values.view.has_shape(want_values)) {
    fail(concat(values.what, " is ", to_string(values.view), "; for a weight [", n, ", ", k,
                "] it must be [", n, ", ", k / 2, "]"));
  }
  if (!meta.view.has_shape(want_meta)) {
    fail(concat(meta.what, " is ", to_string(meta.view), "; for a weight [", n, ", ", k,
                "] it must be [", want_meta[0], ", ", want_meta[1], ", ", kSparseBlock, "]"));
  }
}

void expect_on_cpu(const Named& tensor) {
  if (tensor.view.device.is_cpu()) return;
  fail(concat(tensor.what, " is ", to_string(tensor.view),
              "; pruning is an offline step on the cpu: copy it there, and the result back"));
}

void check_prune(const Prune24Args& args) {
  const Named w{"prune_2_4: w", args.w};
  const Named values{"prune_2_4: out_values", args.out_values};
  const Named meta{"prune_2_4: out_meta", args.out_meta};
  expect_tensor(w, kSparseTypes);
  expect_matrix(w);
  expect_on_cpu(w);
  expect_pruned(values, meta, w, args.w.size(0), args.w.size(1));
  expect_apart(values, w);
  expect_apart(meta, w);
  expect_apart(meta, values);
}

void check_expand(const Expand24Args& args) {
  const Named out{"expand_2_4: out", args.out};
  const Named values{"expand_2_4: values", args.values};
  const Named meta{"expand_2_4: meta", args.meta};
  expect_tensor(out, kSparseTypes);
  expect_matrix(out);
  expect_on_cpu(out);
  expect_pruned(values, meta, out, args.out.size(0), args.out.size(1));
  expect_writable(out);
  expect_apart(out, values);
  expect_apart(out, meta);
}

void check_gemm_2_4(const Gemm24Args& args) {
  const Named a{"gemm_2_4: a", args.a};
  const Named values{"gemm_2_4: values", args.values};
  const Named meta{"gemm_2_4: meta", args.meta};
  const Named out{"gemm_2_4: out", args.out};
  expect_tensor(a, kSparseTypes);
  expect_matrix(a);
  expect_rank(values, 2);
  expect_pruned(values, meta, a, args.values.size(0), args.a.size(1));
  expect_tensor(out, kSparseTypes, a);
  expect_dtype_of(out, a);
  expect_matrix(out);
  if (args.out.size(0) != args.a.size(0) || args.out.size(1) != args.values.size(0)) {
    fail(concat("gemm_2_4: out is ", to_string(args.out), "; for this a and weight it must be [",
                args.a.size(0), ", ", args.values.size(0), "]"));
  }
  expect_writable(out);
  expect_apart(out, a);
  expect_apart(out, values);
  expect_apart(out, meta);
}

const Op<Gemm24Args>& gemm_2_4_op() {
  static const Op<Gemm24Args> op{
      "gemm_2_4", &check_gemm_2_4, &cpu::gemm_2_4, {}, kernels::gemm_2_4_rows()};
  return op;
}

}  // namespace

void prune_2_4(const Prune24Args& args, const Context&) {
  check_prune(args);
  cpu::prune_2_4(args);
}

void expand_2_4(const Expand24Args& args, const Context&) {
  check_expand(args);
  cpu::expand_2_4(args);
}

void gemm_2_4(const Gemm24Args& args, const Context& ctx) {
  run(gemm_2_4_op(), args, args.a.device, ctx);
}

bool supports(const Gemm24Args& args, const Context& ctx) {
  return is_supported(gemm_2_4_op(), args, args.a.device, ctx);
}

}  // namespace tessera
