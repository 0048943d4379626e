// Statements and modules of PTX are taken apart as they should be.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>

#include "tests/emulator/module.h"
#include "tests/emulator/small_floats.h"
#include "tests/emulator/statement.h"

namespace tessera::emulator {
namespace {

TEST(PtxStatement, HasGuardPartsAndOperands) {
  const Statement statement = parse_statement("@!%p3 ld.global.v2.f32 \t{%f1, %f2}, [%rd7+-16]");
  EXPECT_EQ(statement.guard, "%p3");
  EXPECT_TRUE(statement.is_guard_negated);
  EXPECT_EQ(statement.parts, (std::vector<std::string>{"ld", "global", "v2", "f32"}));
  ASSERT_EQ(statement.operands.size(), 2u);
  EXPECT_EQ(statement.operand(0).names, (std::vector<std::string>{"%f1", "%f2"}));
  EXPECT_TRUE(statement.operand(1).is_address);
  EXPECT_EQ(statement.operand(1).name(), "%rd7");
  EXPECT_EQ(statement.operand(1).offset, -16);
}

TEST(PtxStatement, KnowsSecondResultsNegatedPredicatesAndListsInAddresses) {
  const Statement shuffle = parse_statement("shfl.sync.up.b32 %r1|%p2, %r3, 1, 0, -1");
  EXPECT_FALSE(shuffle.operand(0).is_second);
  EXPECT_TRUE(shuffle.operand(1).is_second);
  EXPECT_EQ(shuffle.number(4), 0);
  EXPECT_EQ(shuffle.number(5), -1);
  EXPECT_TRUE(parse_statement("selp.b32 %r1, 1, 0, !%p1").operand(3).is_negated);
  const Statement copy =
      parse_statement("cp.async.bulk.tensor.2d.global [%rd1, {%r1, %r2}], [%r3]");
  ASSERT_EQ(copy.operands.size(), 3u);
  EXPECT_TRUE(copy.operand(1).is_list);
  EXPECT_EQ(copy.operand(2).name(), "%r3");
}

TEST(PtxStatement, LiteralsAreIntegersOrBitsOfFloats) {
  EXPECT_EQ(parse_literal("0f3F800000"), 0x3f800000u);
  EXPECT_EQ(parse_literal("0d3FF0000000000000"), 0x3ff0000000000000u);
  EXPECT_EQ(parse_literal("-2"), ~uint64_t{1});
  EXPECT_EQ(parse_literal("0x1F"), 31u);
}

TEST(PtxModule, FindsKernelsParametersAndVariables) {
  constexpr const char* kText = R"(.version 8.0
.target sm_90a
.address_size 64
// a comment; with a semicolon
.global .align 4 .b8 table[4] = {1, 2, 255};
.extern .shared .align 16 .b8 dynamic[];
.visible .entry _Z3addPfi(
  .param .u8 flag,
  .param .align 8 .b8 params[24]
)
.maxntid 128, 1, 1
{
  .shared .align 16 .b8 tile[100];
  ret;
}
)";
  const auto module = parse_module(kText);
  EXPECT_EQ(module->dynamic_shared, std::vector<std::string>{"dynamic"});
  EXPECT_EQ(std::memcmp(module->globals.at("table").data(), "\1\2\xff\0", 4), 0);
  Kernel& kernel = module->kernels.at("_Z3addPfi");
  EXPECT_EQ(kernel.name, "add");
  EXPECT_EQ(kernel.max_threads, 128);
  ASSERT_EQ(kernel.parameters.size(), 2u);
  EXPECT_EQ(kernel.parameters[1].offset, 8);
  EXPECT_EQ(kernel.parameter_bytes, 32);
  build_kernel(kernel);
  EXPECT_EQ(kernel.static_shared_bytes, 1024);
  EXPECT_EQ(kernel.code.size(), 1u);
}

TEST(SmallFloats, RoundToNearestEvenAndSaturate) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<uint8_t>(bits);
    if ((bits & 0x7f) != 0x7f) {
      EXPECT_EQ(to_e4m3(from_e4m3(byte)), byte);
    }
    if ((bits & 0x7f) < 0x7c) {
      EXPECT_EQ(to_e5m2(from_e5m2(byte)), byte);
    }
  }
  EXPECT_EQ(from_e4m3(to_e4m3(1e6f)), 448.0f);
  EXPECT_EQ(from_e4m3(to_e4m3(17.0f)), 16.0f);  // halfway between 16 and 18
  EXPECT_EQ(from_e4m3(to_e4m3(19.0f)), 20.0f);
  EXPECT_EQ(from_e4m3(to_e4m3(0.0009765625f)), 0.0f);  // halfway to the smallest subnormal
  EXPECT_EQ(from_bf16(to_bf16(1.00390625f)), 1.0f);
}

}  // namespace
}  // namespace tessera::emulator
