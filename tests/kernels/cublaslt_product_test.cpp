// What cuBLASLt is asked for, and what it is never asked for. No library and no GPU is needed.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <vector>

#include "kernels/gemm/cublaslt/product.h"

namespace tessera::kernels {
namespace {

// Only addresses and shapes are looked at. 16-byte boundaries, so that offsets are what they seem.
alignas(16) char memory[64];

TensorView matrix(std::vector<int64_t> shape, DType dtype = DType::bf16) {
  return TensorView::contiguous(memory, dtype, shape);
}

GemmArgs plain(DType in = DType::bf16, DType out = DType::bf16) {
  return {.a = matrix({5, 64}, in), .b = matrix({24, 64}, in), .out = matrix({5, 24}, out)};
}

GemmArgs with_bias(GemmArgs args) {
  args.bias = matrix({24}, args.a.dtype);
  return args;
}
GemmArgs with_residual(GemmArgs args) {
  args.residual = matrix({5, 24}, args.a.dtype);
  return args;
}
GemmArgs with_activation(GemmArgs args, Activation kind) {
  args.activation = kind;
  return args;
}

TEST(CublasLtProduct, HasTheSizesStridesAndTypesOfTheCall) {
  GemmArgs args = plain(DType::f16, DType::f32);
  args.a.strides[0] = 80;
  args.out.strides[0] = 32;
  const std::optional<Product> product = product_of(args);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->m, 5);
  EXPECT_EQ(product->n, 24);
  EXPECT_EQ(product->k, 64);
  EXPECT_EQ(product->in, DType::f16);
  EXPECT_EQ(product->out, DType::f32);
  EXPECT_EQ(product->a, (Placement{80, 0, 16}));
  EXPECT_EQ(product->b, (Placement{64, 0, 16}));
  EXPECT_EQ(product->d, (Placement{32, 0, 16}));
  EXPECT_EQ(product->c, product->d);
}

TEST(CublasLtProduct, SharesOneWeightAmongABatch) {
  GemmArgs args{.a = matrix({3, 5, 64}), .b = matrix({24, 64}), .out = matrix({3, 5, 24})};
  const std::optional<Product> product = product_of(args);
  ASSERT_TRUE(product);
  EXPECT_EQ(product->batch, 3);
  EXPECT_EQ(product->a.batch_stride, 5 * 64);
  EXPECT_EQ(product->b.batch_stride, 0);
  EXPECT_EQ(product->d.batch_stride, 5 * 24);
  args.b = matrix({3, 24, 64});
  EXPECT_EQ(product_of(args)->b.batch_stride, 24 * 64);
}

TEST(CublasLtProduct, TellsAlignmentsApartUpToSixteenBytes) {
  EXPECT_EQ(alignment_of(memory), 16);
  EXPECT_EQ(alignment_of(memory + 2), 2);
  EXPECT_EQ(alignment_of(memory + 12), 4);
  GemmArgs args = with_bias(plain());
  const Product aligned = *product_of(args);
  args.bias->data = memory + 2;
  const Product misaligned = *product_of(args);
  EXPECT_NE(aligned, misaligned);
  EXPECT_NE(ProductHash{}(aligned), ProductHash{}(misaligned));
}

TEST(CublasLtProduct, IsTheSameForTheSameCallAtOtherAddresses) {
  GemmArgs args = plain();
  const Product first = *product_of(args);
  args.a.data = memory + 32;
  EXPECT_EQ(first, *product_of(args));
  EXPECT_EQ(ProductHash{}(first), ProductHash{}(*product_of(args)));
}

TEST(CublasLtProduct, FusesWhatTheLibraryFuses) {
  EXPECT_TRUE(product_of(with_bias(plain())));
  EXPECT_TRUE(product_of(with_residual(plain(DType::f32, DType::f32))));
  EXPECT_TRUE(product_of(with_bias(with_residual(plain(DType::f32, DType::f32)))));
  EXPECT_TRUE(product_of(with_activation(plain(), Activation::relu)));
  EXPECT_TRUE(product_of(with_activation(with_bias(plain()), Activation::gelu_tanh)));
}

TEST(CublasLtProduct, DeclinesOtherEpilogues) {
  EXPECT_FALSE(product_of(with_activation(plain(), Activation::silu)));
  EXPECT_FALSE(product_of(with_activation(plain(), Activation::gelu)));
  EXPECT_FALSE(product_of(with_activation(with_residual(plain()), Activation::relu)));
  EXPECT_FALSE(product_of(with_activation(plain(DType::f32, DType::f32), Activation::gelu_tanh)));
  GemmArgs gated = with_activation(plain(), Activation::relu);
  gated.is_gated = true;
  EXPECT_FALSE(product_of(gated));
}

TEST(CublasLtProduct, DeclinesAResidualOf16BitsBecauseItRoundsTheProductFirst) {
  EXPECT_FALSE(product_of(with_residual(plain())));
}

TEST(CublasLtProduct, DeclinesABiasOrResidualOfAnotherTypeThanOut) {
  const GemmArgs wide = plain(DType::bf16, DType::f32);
  EXPECT_TRUE(product_of(wide));
  EXPECT_FALSE(product_of(with_bias(wide)));
  EXPECT_FALSE(product_of(with_residual(wide)));
}

TEST(CublasLtProduct, DeclinesCodes) {
  GemmArgs args = plain();
  args.b = matrix({24, 64}, DType::i8);
  EXPECT_FALSE(product_of(args));
  args = plain();
  args.out = matrix({5, 24}, DType::e4m3);
  args.out_scale = matrix({1}, DType::f32);
  EXPECT_FALSE(product_of(args));
}

TEST(CublasLtProduct, DeclinesEmptySizes) {
  EXPECT_FALSE(product_of({.a = matrix({0, 8}), .b = matrix({4, 8}), .out = matrix({0, 4})}));
  EXPECT_FALSE(product_of({.a = matrix({5, 8}), .b = matrix({0, 8}), .out = matrix({5, 0})}));
  EXPECT_FALSE(product_of({.a = matrix({5, 0}), .b = matrix({4, 0}), .out = matrix({5, 4})}));
}

TEST(CublasLtProduct, DeclinesRowsThatOverlapUnlessThereIsOne) {
  GemmArgs args = plain();
  args.a.strides[0] = 0;
  EXPECT_FALSE(product_of(args));
  args = {.a = matrix({1, 64}), .b = matrix({24, 64}), .out = matrix({1, 24})};
  args.a.strides[0] = 0;
  ASSERT_TRUE(product_of(args));
  EXPECT_EQ(product_of(args)->a.row_stride, 64);
}

TEST(CublasLtProduct, AllowsTf32OnlyForF32) {
  GemmArgs args = plain();
  args.allow_tf32 = true;
  EXPECT_FALSE(product_of(args)->allows_tf32);
  args = plain(DType::f32, DType::f32);
  EXPECT_FALSE(product_of(args)->allows_tf32);
  args.allow_tf32 = true;
  EXPECT_TRUE(product_of(args)->allows_tf32);
}

}  // namespace
}  // namespace tessera::kernels
