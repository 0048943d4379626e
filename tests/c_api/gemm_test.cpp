// The matrix products through the C ABI, on numbers small enough to check by hand.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"

namespace tessera::testing {
namespace {

using Floats = std::vector<float>;

// Values that bf16 holds exactly.
struct Bf16Array : Array<uint16_t> {
  explicit Bf16Array(std::vector<int64_t> sizes, const Floats& elements = {})
      : Array(std::move(sizes)) {
    dl.dtype = {kDLBfloat, 16, 1};
    for (size_t i = 0; i < elements.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, &elements[i], sizeof bits);
      values[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  Floats floats() const {
    Floats all(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = uint32_t{values[i]} << 16;
      std::memcpy(&all[i], &bits, sizeof bits);
    }
    return all;
  }
};

// a . b^T = {3, 5, -1; 7, 11, -1}; each test sets the arguments it is about.
struct GemmCase {
  Array<float> a{{2, 2}, {1, 2, 3, 4}};
  Array<float> b{{3, 2}, {1, 1, 1, 2, 1, -1}};
  Array<float> out{{2, 3}};
  const DLTensor* bias = nullptr;
  const DLTensor* residual = nullptr;
  int32_t activation = TESSERA_NO_ACTIVATION;
  int32_t flags = 0;

  TesseraStatus run(const TesseraContext* ctx = nullptr) {
    return tessera_gemm(a, b, out, bias, residual, nullptr, nullptr, activation, flags,
                        TESSERA_DTYPE_AUTO, ctx);
  }
};

TEST(CApiGemm, MultipliesByTheTransposeOfB) {
  GemmCase c;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{3, 5, -1, 7, 11, -1}));
}

TEST(CApiGemm, AddsBiasThenActivatesThenAddsTheResidual) {
  GemmCase c;
  Array<float> bias({3}, {-4, 0, 0});
  Array<float> residual({2, 3}, {1, 1, 1, 2, 2, 2});
  c.bias = bias;
  c.residual = residual;
  c.activation = TESSERA_RELU;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{1, 6, 1, 5, 13, 2}));
}

TEST(CApiGemm, TakesOutAsTheResidual) {
  GemmCase c;
  c.out.values = {1, 2, 3, 4, 5, 6};
  c.residual = c.out;
  c.flags = TESSERA_GEMM_STATIC_B | TESSERA_GEMM_ALLOW_TF32;
  expect_ok(c.run());
  EXPECT_EQ(c.out.values, (Floats{4, 7, 2, 11, 16, 5}));
}

TEST(CApiGemm, GatesTheHalvesThatPackGateUpInterleaves) {
  Array<float> a({1, 1}, {2});
  Array<float> gate({8, 1}, {-4, -3, -2, -1, 1, 2, 3, 4});
  Array<float> up({8, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  Array<float> b({16, 1});
  expect_ok(tessera_pack_gate_up(gate, up, b, nullptr));
  EXPECT_EQ(b.values, (Floats{-4, -3, -2, -1, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8}));
  Array<float> out({1, 8});
  expect_ok(tessera_gemm(a, b, out, nullptr, nullptr, nullptr, nullptr, TESSERA_RELU,
                         TESSERA_GEMM_GATED, TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(out.values, (Floats{0, 0, 0, 0, 20, 48, 84, 128}));
}

TEST(CApiGemm, TakesABatchWithOneBForAll) {
  Array<float> a({2, 1, 2}, {1, 2, 3, 4});
  GemmCase c;
  Array<float> out({2, 1, 3});
  expect_ok(tessera_gemm(a, c.b, out, nullptr, nullptr, nullptr, nullptr, TESSERA_NO_ACTIVATION, 0,
                         TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(out.values, (Floats{3, 5, -1, 7, 11, -1}));
}

TEST(CApiGemm, TakesCodesOfBWithTheirScales) {
  Array<float> a({1, 2}, {1, 2});
  Array<int8_t> b({2, 2}, {10, 20, -5, 1});
  Array<float> b_scale({2}, {0.5f, 2.0f});
  Array<float> out({1, 2});
  expect_ok(tessera_gemm(a, b, out, nullptr, nullptr, b_scale, nullptr, TESSERA_NO_ACTIVATION, 0,
                         TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(out.values, (Floats{25, -6}));
}

TEST(CApiGemm, WritesCodesByAScale) {
  GemmCase c;
  Array<float> out_scale({1}, {0.5f});
  Array<int8_t> integers({2, 3});
  Array<uint8_t> fp8({2, 3});
  expect_ok(tessera_gemm(c.a, c.b, integers, nullptr, nullptr, nullptr, out_scale,
                         TESSERA_NO_ACTIVATION, 0, TESSERA_DTYPE_AUTO, nullptr));
  EXPECT_EQ(integers.values, (std::vector<int8_t>{6, 10, -2, 14, 22, -2}));
  expect_ok(tessera_gemm(c.a, c.b, fp8, nullptr, nullptr, nullptr, out_scale, TESSERA_NO_ACTIVATION,
                         0, TESSERA_E4M3, nullptr));
  EXPECT_EQ(fp8.values, (std::vector<uint8_t>{0x4c, 0x52, 0xc0, 0x56, 0x5b, 0xc0}));
}

TEST(CApiGemm, ChecksWithoutRunning) {
  GemmCase c;
  TesseraContext ctx{};
  ctx.struct_size = sizeof ctx;
  ctx.check_only = 1;
  EXPECT_EQ(c.run(&ctx), TESSERA_OK) << tessera_last_error();
  EXPECT_EQ(c.out.values, Floats(6));
  c.flags = TESSERA_GEMM_GATED;
  EXPECT_EQ(c.run(&ctx), TESSERA_NOT_SUPPORTED);
  Array<float> packed({16, 2});
  Array<float> half({8, 2});
  expect_refused(tessera_pack_gate_up(half, half, packed, &ctx), "pack_gate_up: check_only is set");
}

TEST(CApiGemm, RefusesWhatItDoesNotKnow) {
  GemmCase c;
  c.activation = 4;
  expect_refused(c.run(), "gemm: activation is 4; want 0 to 3, or -1 for none");
  c.activation = -2;
  expect_refused(c.run(), "gemm: activation is -2");
  c.activation = TESSERA_NO_ACTIVATION;
  c.flags = 8;
  expect_refused(c.run(), "gemm: flags is 8");
  c.flags = TESSERA_GEMM_GATED;
  expect_refused(c.run(), "gemm: is_gated is set and activation is not");
}

TEST(CApiGemm, NamesTheTensorThatIsWrong) {
  GemmCase c;
  Array<float> short_bias({2});
  c.bias = short_bias;
  expect_refused(c.run(), "gemm: bias");
  expect_refused(tessera_gemm(c.a, nullptr, c.out, nullptr, nullptr, nullptr, nullptr,
                              TESSERA_NO_ACTIVATION, 0, TESSERA_DTYPE_AUTO, nullptr),
                 "gemm: b is NULL");
  expect_refused(tessera_pack_gate_up(c.a, c.a, c.out, nullptr), "pack_gate_up: gate");
}

TEST(CApiGemm, PrunesExpandsAndMultipliesByWhatIsKept) {
  Floats dense(32, 0.0f);
  dense[0] = 1, dense[1] = -3, dense[2] = 2, dense[3] = 0.5f;  // keeps -3 and 2
  dense[31] = 8;
  Bf16Array w({1, 32}, dense);
  Bf16Array values({1, 16});
  Array<int32_t> meta({1, 1, 32});
  expect_ok(tessera_prune_2_4(w, values, meta, nullptr));
  EXPECT_EQ(values.floats()[0], -3);
  EXPECT_EQ(values.floats()[1], 2);
  Bf16Array back({1, 32});
  expect_ok(tessera_expand_2_4(values, meta, back, nullptr));
  Floats kept = dense;
  kept[0] = 0, kept[3] = 0;
  EXPECT_EQ(back.floats(), kept);
  Bf16Array a({2, 32}, Floats(64, 1.0f));
  a.values[0] = 0x4280;  // 64, where the weight was pruned
  Bf16Array out({2, 1});
  expect_ok(tessera_gemm_2_4(a, values, meta, out, nullptr));
  EXPECT_EQ(out.floats(), (Floats{7, 7}));
}

TEST(CApiGemm, RefusesToPruneWhatHasNoBlocks) {
  Bf16Array w({1, 16}), values({1, 8});
  Array<int32_t> meta({1, 0, 32});
  expect_refused(tessera_prune_2_4(w, values, meta, nullptr), "k must be a multiple of 32");
}

}  // namespace
}  // namespace tessera::testing
