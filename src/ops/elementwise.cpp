// activation, softmax, copy, embedding, reduce and argmax: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "ops/elementwise.h"

#include "core/text.h"

namespace tessera {
namespace {

using namespace ops;

void check_activation(const ActivationArgs& args) {
  const Named x{"activation: x", args.x};
  const Named out{"activation: out", args.out};
  expect_tensor(x, kFloats);
  expect_rows(x);
  expect_tensor(out, kFloats, x);
  expect_dtype_of(out, x);
  expect_shape_of(out, x);
  expect_rows(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (args.up) {
    const Named up{"activation: up", *args.up};
    expect_tensor(up, kFloats, x);
    expect_dtype_of(up, x);
    expect_shape_of(up, x);
    expect_rows(up);
    expect_same_or_apart(out, up);
  }
  expects(args.kind <= Activation::gelu_tanh,
          "activation: kind is none of relu, silu, gelu and gelu_tanh");
}

const Op<ActivationArgs>& activation_op() {
  static const auto op = elementwise_op("activation", &check_activation, &cpu::activation,
                                        &kernels::ElementwiseRows::activation);
  return op;
}

void check_softmax(const SoftmaxArgs& args) {
  const Named x{"softmax: x", args.x};
  const Named out{"softmax: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  expect_tensor(out, kFloats, x);
  expect_dtype_of(out, x);
  expect_shape_of(out, x);
  expect_rows(out);
  expect_writable(out);
  expect_same_or_apart(out, x);
  if (!args.mask) return;
  const Named mask{"softmax: mask", *args.mask};
  expect_tensor(mask, {DType::u8, DType::f32}, x);
  const Rows mask_rows = expect_rows(mask);
  if (mask_rows.num_cols != rows.num_cols || (mask_rows.num_rows == 0 && rows.num_rows > 0)) {
    fail(concat("softmax: mask is ", to_string(*args.mask), " and x is ", to_string(args.x),
                "; a mask needs at least one row, of ", rows.num_cols, " columns"));
  }
  expect_apart(out, mask);
}

const Op<SoftmaxArgs>& softmax_op() {
  static const auto op =
      elementwise_op("softmax", &check_softmax, &cpu::softmax, &kernels::ElementwiseRows::softmax);
  return op;
}

void check_copy(const CopyArgs& args) {
  const Named x{"copy: x", args.x};
  const Named out{"copy: out", args.out};
  expect_tensor(x, kWholeBytes);
  expect_tensor(out, kWholeBytes, x);
  if (is_float16_or_32(args.x.dtype) && is_float16_or_32(args.out.dtype)) {
    if (args.x.dtype != args.out.dtype) {
      expect_rows(x);
      expect_rows(out);
    }
  } else {
    expect_dtype_of(out, x);
  }
  expect_shape_of(out, x);
  expect_writable(out);
  expect_apart(out, x);
}

const Op<CopyArgs>& copy_op() {
  static const auto op =
      elementwise_op("copy", &check_copy, &cpu::copy, &kernels::ElementwiseRows::copy);
  return op;
}

void check_embedding(const EmbeddingArgs& args) {
  const Named table{"embedding: table", args.table};
  const Named ids{"embedding: ids", args.ids};
  const Named out{"embedding: out", args.out};
  expect_tensor(table, kFloats);
  expect_rank(table, 2);
  const Rows table_rows = expect_rows(table);
  expect_tensor(out, kFloats, table);
  expect_dtype_of(out, table);
  const Rows rows = expect_rows(out);
  if (rows.num_cols != table_rows.num_cols) {
    fail(concat("embedding: out is ", to_string(args.out), " and table is ", to_string(args.table),
                "; out must be ", table_rows.num_cols, " wide, as the table is"));
  }
  expect_writable(out);
  expect_apart(out, table);
  expect_tensor(ids, kIndices, table);
  expect_one_each(ids, rows.num_rows, "row of out");
  if (!args.computed) return;
  const Named computed{"embedding: computed", *args.computed};
  expect_tensor(computed, {DType::i32}, table);
  expect_rank(computed, 1);
  expect_contiguous(computed);
}

const Op<EmbeddingArgs>& embedding_op() {
  static const auto op = elementwise_op("embedding", &check_embedding, &cpu::embedding,
                                        &kernels::ElementwiseRows::embedding);
  return op;
}

void check_reduce(const ReduceArgs& args) {
  const Named x{"reduce: x", args.x};
  const Named out{"reduce: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  expects(args.kind <= Reduction::absmax, "reduce: kind is none of sum, mean, max, min and absmax");
  const bool takes_nothing = args.kind == Reduction::sum || args.kind == Reduction::absmax;
  if (rows.num_cols == 0 && !takes_nothing) {
    fail(
        concat("reduce: x is ", to_string(args.x), "; mean, max and min need at least one column"));
  }
  expect_tensor(out, {DType::f32}, x);
  expect_one_each(out, rows.num_rows, "row of x");
  expect_apart(out, x);
}

void check_argmax(const ArgmaxArgs& args) {
  const Named x{"argmax: x", args.x};
  const Named out{"argmax: out", args.out};
  expect_tensor(x, kFloats);
  const Rows rows = expect_rows(x);
  if (rows.num_cols == 0) {
    fail(concat("argmax: x is ", to_string(args.x), "; it needs at least one column"));
  }
  expect_tensor(out, kIndices, x);
  expect_one_each(out, rows.num_rows, "row of x");
  expect_apart(out, x);
}

const Op<ReduceArgs>& reduce_op() {
  static const auto op =
      elementwise_op("reduce", &check_reduce, &cpu::reduce, &kernels::ElementwiseRows::reduce);
  return op;
}

const Op<ArgmaxArgs>& argmax_op() {
  static const auto op =
      elementwise_op("argmax", &check_argmax, &cpu::argmax, &kernels::ElementwiseRows::argmax);
  return op;
}

}  // namespace

void activation(const ActivationArgs& args, const Context& ctx) {
  run(activation_op(), args, args.x.device, ctx);
}

bool supports(const ActivationArgs& args, const Context& ctx) {
  return is_supported(activation_op(), args, args.x.device, ctx);
}

void softmax(const SoftmaxArgs& args, const Context& ctx) {
  run(softmax_op(), args, args.x.device, ctx);
}

bool supports(const SoftmaxArgs& args, const Context& ctx) {
  return is_supported(softmax_op(), args, args.x.device, ctx);
}

void copy(const CopyArgs& args, const Context& ctx) { run(copy_op(), args, args.x.device, ctx); }

bool supports(const CopyArgs& args, const Context& ctx) {
  return is_supported(copy_op(), args, args.x.device, ctx);
}

void embedding(const EmbeddingArgs& args, const Context& ctx) {
  run(embedding_op(), args, args.table.device, ctx);
}

bool supports(const EmbeddingArgs& args, const Context& ctx) {
  return is_supported(embedding_op(), args, args.table.device, ctx);
}

void reduce(const ReduceArgs& args, const Context& ctx) {
  run(reduce_op(), args, args.x.device, ctx);
}

void argmax(const ArgmaxArgs& args, const Context& ctx) {
  run(argmax_op(), args, args.x.device, ctx);
}

bool supports(const ReduceArgs& args, const Context& ctx) {
  return is_supported(reduce_op(), args, args.x.device, ctx);
}

bool supports(const ArgmaxArgs& args, const Context& ctx) {
  return is_supported(argmax_op(), args, args.x.device, ctx);
}

}  // namespace tessera
