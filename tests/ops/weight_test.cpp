// How a product finds its row by the type and the packing of its weight, and the function that
// packs one, on a table made for the test.
// SPDX-License-Identifier: MIT
#include "ops/weight.h"

#include "kernels/gemm/rows.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

using namespace ops;

constexpr auto kTiles = static_cast<Packing>(100);  // a layout no kernel has

void launch_nothing(const GemmArgs&, const Context&) {}
void pack_nothing(const Weight&, const Weight&, const Context&) {}
bool has_even_rows(const GemmArgs& args) { return args.b.n() % 2 == 0; }

constexpr Row<GemmArgs> kSm90[] = {
    {"gemm",
     Library::sm90,
     {DType::bf16, DType::bf16, DType::i4, kTiles},
     &launch_nothing,
     {},
     &has_even_rows,
     true,
     nullptr,
     &pack_nothing},
};
constexpr Row<GemmArgs> kPortable[] = {
    {"gemm", Library::portable, {DType::bf16, DType::bf16}, &launch_nothing},
    {"gemm", Library::portable, {DType::bf16, DType::bf16, DType::i8}, &launch_nothing},
    {"gemm", Library::portable, {DType::bf16, DType::f32, DType::i8}, &launch_nothing},
};

class WeightRows : public ::testing::Test {
 protected:
  Op<GemmArgs> op{"gemm", [](const GemmArgs&) {}, [](const GemmArgs&) {}, kSm90, kPortable};
  Target hopper{cuda_device(), 90}, ampere{cuda_device(), 80};
  Tensor a{DType::bf16, {4, 16}}, out{DType::bf16, {4, 8}};
  Tensor dense{DType::bf16, {8, 16}}, bytes{DType::i8, {8, 16}}, nibbles{DType::i4, {8, 16}};
  Tensor odd{DType::i4, {7, 16}}, scale{DType::f32, {8}}, odd_scale{DType::f32, {7}};

  GemmArgs args(const WeightArg& b) const { return {.a = a, .b = b, .out = out}; }
  std::string found(const WeightArg& b, const Target& target) const {
    const Row<GemmArgs>* row = find_row(op, args(b), target, {});
    return row == nullptr ? "none" : row->name();
  }
};

TEST_F(WeightRows, TheTypeAndThePackingOfTheWeightChooseTheRow) {
  Weight packed{.values = nibbles, .scale = scale};
  EXPECT_EQ(found(dense, hopper), "gemm_bf16");
  EXPECT_EQ(found(Weight{.values = bytes, .scale = scale}, hopper), "gemm_bf16_wi8");
  EXPECT_EQ(found(packed, hopper), "none") << "the row takes another packing";
  packed.packing = kTiles;
  EXPECT_EQ(found(packed, hopper), "gemm_sm90_bf16_wi4_packed");
  EXPECT_EQ(found(packed, ampere), "none");
}

TEST_F(WeightRows, NamesTellAWeightFromAnOutput) {
  EXPECT_EQ(kPortable[2].name(), "gemm_bf16_wi8_f32");
}

TEST_F(WeightRows, ALoaderLearnsThePackingOfTheRowItsWeightWillUse) {
  const Weight even{.values = nibbles, .scale = scale}, uneven{.values = odd, .scale = odd_scale};
  EXPECT_EQ(preferred_packing(op, args(even), hopper, {}), kTiles);
  EXPECT_EQ(preferred_packing(op, args(uneven), hopper, {}), Packing::rows);
  EXPECT_EQ(preferred_packing(op, args(even), ampere, {}), Packing::rows);
  EXPECT_EQ(preferred_packing(op, args(dense), hopper, {}), Packing::rows);
}

TEST_F(WeightRows, TheRowsPackFunctionIsFoundByTypeAndPacking) {
  Weight packed{.values = nibbles, .scale = scale, .packing = kTiles};
  EXPECT_EQ(find_pack(op, packed, hopper), &pack_nothing);
  EXPECT_EQ(find_pack(op, packed, ampere), nullptr);
  packed.values = bytes;
  EXPECT_EQ(find_pack(op, packed, hopper), nullptr);
}

TEST_F(WeightRows, PackingIsRefusedWhereNoRowDoesIt) {
  const Tensor other(DType::i4, {8, 16}), other_scale(DType::f32, {8});
  const Weight weight{.values = nibbles, .scale = scale};
  const Weight packed{.values = other, .scale = other_scale, .packing = kTiles};
  EXPECT_EQ(tessera::preferred_packing(args(weight)), Packing::rows) << "the CPU reads rows";
  EXPECT_TRUE(refused([&] { pack_weight({.weight = weight, .out = packed}); },
                      {"no row packs i4 from 'rows' to 'packed' on cpu", "preferred_packing"}));
  EXPECT_TRUE(refused([&] { pack_weight({.weight = weight, .out = weight}); },
                      {"pack_weight: out", "shares memory"}));
}

TEST_F(WeightRows, ARefusalNamesTheWeight) {
  const Weight weight{.values = nibbles, .scale = scale};
  EXPECT_TRUE(refused([&] { refuse(op, args(weight), hopper, {}); },
                      {"no row takes bf16 by i4 to bf16", "gemm_sm90_bf16_wi4_packed"}));
}

// Every packed layout of the real tables can be made.
TEST(GemmRows, ARowHasAPackFunctionExactlyWhereItWantsAPacking) {
  for (const auto rows :
       {kernels::gemm_rows_sm90(), kernels::gemm_rows_cublaslt(), kernels::gemm_rows()}) {
    for (const Row<GemmArgs>& row : rows) {
      EXPECT_EQ(row.pack != nullptr, row.key.packing != Packing::rows) << row.name();
    }
  }
}

}  // namespace
}  // namespace tessera::testing
