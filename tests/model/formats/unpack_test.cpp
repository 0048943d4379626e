// Converters on words and blocks that were worked out by hand.
// SPDX-License-Identifier: MIT
#include "model/formats/unpack.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "model/formats/decoded_rows.h"
#include "model/formats/gguf_blocks.h"
#include "model/formats/nf4.h"
#include "tests/core/message_of.h"

namespace tessera::testing {
namespace {

using model::CodeForm;
using model::DecodedRows;

TEST(Unpack, RowsBeginWithTheLowestBits) {
  std::vector<int16_t> codes(10);
  // Ten codes of 4 bits take two words; the rest of the second is not read.
  model::unpack_rows(std::vector<uint32_t>{0x76543210, 0xffffff98}, 4, 1, 10, codes.data());
  EXPECT_EQ(codes, (std::vector<int16_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  codes.resize(4);
  model::unpack_rows(std::vector<uint32_t>{0x80ff0102}, 8, 1, 4, codes.data());
  EXPECT_EQ(codes, (std::vector<int16_t>{2, 1, 255, 128}));
}

// GPTQ: a word holds eight inputs of one output.
TEST(Unpack, ColumnsAreTransposed) {
  std::vector<int16_t> codes(16);
  model::unpack_columns(std::vector<uint32_t>{0x76543210, 0xfedcba98}, 4, 8, 2, codes.data());
  EXPECT_EQ(codes, (std::vector<int16_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
}

// AWQ: nibbles 0 to 7 are columns 0, 2, 4, 6, 1, 3, 5, 7.
TEST(Unpack, AwqInterleavesEightColumns) {
  std::vector<int16_t> codes(16);
  model::unpack_awq(std::vector<uint32_t>{0x76543210, 0x00000001}, 2, 8, codes.data());
  // Column by column: its code in the first row, then in the second.
  EXPECT_EQ(codes, (std::vector<int16_t>{0, 1, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0}));
}

TEST(Unpack, NibblesBeginAtEitherEnd) {
  const std::vector<uint8_t> bytes = {0x21, 0xf0};
  std::vector<int16_t> codes(4);
  model::unpack_nibbles(bytes, model::FirstNibble::low, codes.data());
  EXPECT_EQ(codes, (std::vector<int16_t>{1, 2, 0, 15}));
  model::unpack_nibbles(bytes, model::FirstNibble::high, codes.data());
  EXPECT_EQ(codes, (std::vector<int16_t>{2, 1, 15, 0}));
}

// 127 is 2^0; the least, 2^-127, has no full mantissa in float and is exact all the same.
TEST(Unpack, ScalesOfE8m0ArePowersOfTwo) {
  EXPECT_EQ(model::e8m0_value(127), 1.0f);
  EXPECT_EQ(model::e8m0_value(130), 8.0f);
  EXPECT_EQ(model::e8m0_value(120), 1.0f / 128);
  EXPECT_EQ(model::e8m0_value(254), 0x1p127f);
  EXPECT_EQ(model::e8m0_value(0), 0x1p-127f);
}

DecodedRows two_groups() {
  return {.num_rows = 1,
          .num_cols = 4,
          .num_groups = 2,
          .group = 2,
          .codes = {3, 15, 0, 9},
          .scale = {0.5f, 2.0f},
          .zero = {8, 7}};
}

TEST(DecodedRows, AreValues) {
  const Tensor out(DType::f32, {1, 3});
  dequantize(two_groups(), 0, 1, out);
  const float* values = out.view().as<float>();
  EXPECT_EQ(values[0], 3.5f);    // (15 - 8) * 0.5
  EXPECT_EQ(values[1], -14.0f);  // (0 - 7) * 2
  EXPECT_EQ(values[2], 4.0f);    // (9 - 7) * 2
}

struct Encoded {
  Tensor codes, scale, zero, order;
  Weight weight;
};

Encoded tensors_of(const CodeForm& form, int64_t k, int64_t groups) {
  Encoded made{Tensor(form.codes, {1, k}),
               Tensor(DType::f32, {1, groups}),
               Tensor(DType::u8, {1, groups}),
               Tensor(DType::i32, {k}),
               {}};
  made.weight = {.values = made.codes, .scale = made.scale.view()};
  if (form.has_zero_points) made.weight.zero_point = made.zero.view();
  if (form.has_order) made.weight.order = made.order.view();
  return made;
}

TEST(DecodedRows, KeepZeroPointsWhereTheFormHasThem) {
  const CodeForm form{.codes = DType::i4, .group = 2, .has_zero_points = true};
  const Encoded made = tensors_of(form, 4, 2);
  encode(two_groups(), 0, 0, form, made.weight, "w");
  EXPECT_EQ(made.codes.view().as<uint8_t>()[0], 0xf3);  // even columns in the low nibble
  EXPECT_EQ(made.codes.view().as<uint8_t>()[1], 0x90);
  EXPECT_EQ(made.zero.view().as<uint8_t>()[0], 8);
  EXPECT_EQ(made.zero.view().as<uint8_t>()[1], 7);
  EXPECT_EQ(made.scale.view().as<float>()[1], 2.0f);
}

TEST(DecodedRows, AreSignedWithoutZeroPointsAndTakeSmallerGroups) {
  const CodeForm form{.codes = DType::i8, .group = 1};
  const Encoded made = tensors_of(form, 4, 4);
  encode(two_groups(), 0, 0, form, made.weight, "w");
  const auto* codes = made.codes.view().as<int8_t>();
  EXPECT_EQ((std::vector<int>{codes[0], codes[1], codes[2], codes[3]}),
            (std::vector<int>{-5, 7, -7, 2}));
  const float* scale = made.scale.view().as<float>();
  EXPECT_EQ((std::vector<float>{scale[0], scale[1], scale[2], scale[3]}),
            (std::vector<float>{0.5f, 0.5f, 2.0f, 2.0f}));
}

TEST(DecodedRows, SignedCodesMoveUpBesideOthersWithZeroPoints) {
  DecodedRows rows = two_groups();
  rows.zero.clear();
  rows.codes = {-8, 7, 0, -1};
  const CodeForm form{.codes = DType::i4, .group = 2, .has_zero_points = true};
  const Encoded made = tensors_of(form, 4, 2);
  encode(rows, 0, 0, form, made.weight, "w");
  EXPECT_EQ(made.codes.view().as<uint8_t>()[0], 0xf0);
  EXPECT_EQ(made.codes.view().as<uint8_t>()[1], 0x78);
  EXPECT_EQ(made.zero.view().as<uint8_t>()[0], 8);
}

TEST(DecodedRows, RefuseACodeThatIsNotSymmetric) {
  DecodedRows rows = two_groups();  // 15 - 7 = 8 is no i4
  rows.zero = {7, 7};
  const CodeForm form{.codes = DType::i4, .group = 2};
  const Encoded made = tensors_of(form, 4, 2);
  const std::string message =
      message_of([&] { encode(rows, 0, 0, form, made.weight, "layer.weight"); });
  EXPECT_NE(message.find("'layer.weight' has code 15 with zero point 7 at [0, 1]"),
            std::string::npos)
      << message;
}

TEST(DecodedRows, SortColumnsByTheirGroup) {
  EXPECT_EQ(model::sorted_columns(std::vector<int32_t>{1, 0, 1, 0}, 2, "w"),
            (std::vector<int32_t>{1, 3, 0, 2}));
  const std::string message = message_of([&] {
    model::sorted_columns(std::vector<int32_t>{1, 0, 0, 0}, 2, "w.g_idx");
  });
  EXPECT_NE(message.find("'w.g_idx' puts other than 2 columns into group 0"), std::string::npos)
      << message;
}

// A block of a type by its bytes: 0x3c00 is 1 in f16, 0x3800 is 0.5, 0x4000 is 2.
std::vector<float> unpacked_values(int type, const std::vector<uint8_t>& bytes) {
  const model::BlockType& block = model::block_type(type);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), block.num_bytes);
  std::vector<float> values(static_cast<size_t>(block.num_elements));
  decode_values(block, std::as_bytes(std::span(bytes)), values);
  if (!block.codes) return values;
  // The codes say the same.
  DecodedRows rows{.num_rows = 1, .num_cols = block.num_elements};
  decode_codes(block, std::as_bytes(std::span(bytes)), rows);
  const Tensor out(DType::f32, {1, block.num_elements});
  dequantize(rows, 0, 0, out);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(out.view().as<float>()[i], values[i]) << i;
  return values;
}

// Codes of a table are indices, in values and in a Weight.
TEST(DecodedRows, MayHaveATable) {
  DecodedRows rows{.num_rows = 1,
                   .num_cols = 4,
                   .num_groups = 2,
                   .group = 2,
                   .codes = {3, 15, 0, 9},
                   .scale = {0.5f, 2.0f}};
  for (int i = 0; i < 16; ++i) rows.table.push_back(static_cast<float>(i * i - 9));
  const Tensor out(DType::f32, {1, 4});
  dequantize(rows, 0, 0, out);
  const float* values = out.view().as<float>();
  EXPECT_EQ((std::vector<float>{values, values + 4}),
            (std::vector<float>{0, 0.5f * 216, 2 * -9, 2 * 72}));
  const Tensor codes(DType::i4, {1, 4}), scale(DType::f32, {1, 2});
  const CodeForm form{.codes = DType::i4, .group = 2, .has_table = true};
  encode(rows, 0, 0, form, {.values = codes, .scale = scale.view()}, "t");
  EXPECT_EQ(codes.view().as<uint8_t>()[0], 0xf3);
  EXPECT_EQ(codes.view().as<uint8_t>()[1], 0x90);
  EXPECT_EQ(scale.view().as<float>()[1], 2.0f);
}

TEST(GgufBlocks, Q4_0) {
  std::vector<uint8_t> block(18, 0x88);
  block[0] = 0x00, block[1] = 0x38;
  block[2] = 0xf0;  // element 0: 0 - 8; element 16: 15 - 8
  const std::vector<float> values = unpacked_values(2, block);
  EXPECT_EQ(values[0], -4.0f);
  EXPECT_EQ(values[16], 3.5f);
  EXPECT_EQ(values[1], 0.0f);
}

TEST(GgufBlocks, Q4_1AndQ5_1AddASmallestValue) {
  std::vector<uint8_t> block(20, 0x00);
  block[1] = 0x38, block[3] = 0x40;  // d 0.5, m 2
  block[4] = 0x3a;
  std::vector<float> values = unpacked_values(3, block);
  EXPECT_EQ(values[0], 7.0f);
  EXPECT_EQ(values[16], 3.5f);
  EXPECT_EQ(values[31], 2.0f);
  block.resize(24, 0x00);
  block[4] = 0x01, block[6] = 0x01;  // the fifth bits of elements 0 and 16
  block[8] = 0x3a;
  values = unpacked_values(7, block);
  EXPECT_EQ(values[0], (16 + 10) * 0.5f + 2);
  EXPECT_EQ(values[16], (16 + 3) * 0.5f + 2);
  EXPECT_EQ(values[1], 2.0f);
}

TEST(GgufBlocks, Q5_0) {
  std::vector<uint8_t> block(22, 0x00);
  block[1] = 0x3c;
  block[5] = 0x80;   // the fifth bit of element 31
  block[21] = 0x50;  // the nibble of element 31: 5
  const std::vector<float> values = unpacked_values(6, block);
  EXPECT_EQ(values[31], 5.0f);  // 16 + 5 - 16
  EXPECT_EQ(values[0], -16.0f);
}

TEST(GgufBlocks, Q8_0) {
  std::vector<uint8_t> block(34, 0x00);
  block[1] = 0x40;
  block[2] = 0x80, block[33] = 0x7f;
  const std::vector<float> values = unpacked_values(8, block);
  EXPECT_EQ(values[0], -256.0f);
  EXPECT_EQ(values[31], 254.0f);
}

// Scales 1 to 8 and mins 9 to 16 of the eight groups, by hand: groups 4 to 7 keep their low four
// bits in bytes 8 to 11, and their upper two above those of groups 0 to 3.
TEST(GgufBlocks, Q4_KAndQ5_K) {
  std::vector<uint8_t> block(144, 0x00);
  block[1] = 0x3c, block[3] = 0x38;  // d 1, dmin 0.5
  for (uint8_t j = 0; j < 4; ++j) {
    block[4 + j] = static_cast<uint8_t>(1 + j);
    block[8 + j] = static_cast<uint8_t>(9 + j);
  }
  for (uint8_t j = 0; j < 4; ++j) {
    const int scale = 5 + j + (j == 0 ? 48 : 0), min = 13 + j;  // 53 for group 4: two high bits
    block[12 + j] = static_cast<uint8_t>((scale & 15) | (min & 15) << 4);
    block[4 + j] = static_cast<uint8_t>(block[4 + j] | scale >> 4 << 6);
    block[8 + j] = static_cast<uint8_t>(block[8 + j] | min >> 4 << 6);
  }
  block[16] = 0x21;                // element 0: 1; element 32: 2
  block[16 + 2 * 32 + 31] = 0x43;  // element 159: 3; element 191: 4
  std::vector<float> values = unpacked_values(12, block);
  EXPECT_EQ(values[0], 1 * 1 - 4.5f);
  EXPECT_EQ(values[32], 2 * 2 - 5.0f);
  EXPECT_EQ(values[159], 53 * 3 - 6.5f);
  EXPECT_EQ(values[191], 6 * 4 - 7.0f);
  EXPECT_EQ(values[255], -8.0f);
  // Q5_K: 32 bytes of fifth bits, bit g for group g, before the nibbles.
  std::vector<uint8_t> wider(176, 0x00);
  std::copy_n(block.begin(), 16, wider.begin());
  std::copy_n(block.begin() + 16, 128, wider.begin() + 48);
  wider[16 + 31] = 1 << 5;  // group 5, element 31 of it: 191
  values = unpacked_values(13, wider);
  EXPECT_EQ(values[191], 6 * 20 - 7.0f);
  EXPECT_EQ(values[159], 53 * 3 - 6.5f);
}

TEST(GgufBlocks, Q6_K) {
  std::vector<uint8_t> block(210, 0x00);
  block[209] = 0x3c;  // d 1
  for (size_t g = 0; g < 16; ++g) block[192 + g] = static_cast<uint8_t>(g + 1);
  block[207] = 0xfe;                                       // the last scale: -2
  block[0] = 0x95;                                         // elements 0 and 64
  block[128] = 0b00'01'00'10;                              // upper bits of elements 0, 32, 64, 96
  block[64 + 63] = 0xf0, block[128 + 63] = 0b11'00'00'00;  // element 255: 63
  const std::vector<float> values = unpacked_values(14, block);
  EXPECT_EQ(values[0], 1.0f * (2 * 16 + 5 - 32));
  EXPECT_EQ(values[64], 5.0f * (1 * 16 + 9 - 32));
  EXPECT_EQ(values[255], -2.0f * (63 - 32));
  EXPECT_EQ(values[16], 2.0f * -32);
}

TEST(GgufBlocks, RefuseATypeByNumber) {
  EXPECT_EQ(model::find_block_type(10), nullptr);
  EXPECT_NE(message_of([] { model::block_type(10); }).find("number 10 is not supported"),
            std::string::npos);
}

TEST(Nf4, TheFirstElementIsTheHighNibble) {
  std::vector<float> table(16), out(6);
  for (size_t i = 0; i < 16; ++i) table[i] = static_cast<float>(i);
  // Elements 2 to 7 of blocks of 4.
  model::decode_nf4(std::vector<uint8_t>{0x12, 0x34, 0x56}, table, std::vector<float>{10, 100}, 4,
                    2, out);
  EXPECT_EQ(out, (std::vector<float>{10, 20, 300, 400, 500, 600}));
}

TEST(Nf4, LargestValuesMayBeQuantised) {
  std::vector<float> table(256), out(3);
  table[7] = 0.25f, table[255] = 1.0f;
  model::decode_nested(std::vector<uint8_t>{7, 255, 255}, table, std::vector<float>{4, 8}, 2, 0.5f,
                       out);
  EXPECT_EQ(out, (std::vector<float>{1.5f, 4.5f, 8.5f}));
}

}  // namespace
}  // namespace tessera::testing
