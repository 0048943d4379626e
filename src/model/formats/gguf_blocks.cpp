// Blocks of GGUF files to codes and to values.
// SPDX-License-Identifier: MIT
#include "model/formats/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

enum Number : int {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
};

constexpr BlockType kTypes[] = {
    {kF32, "F32", 1, 4, DType::f32},
    {kF16, "F16", 1, 2, DType::f16},
    {kBf16, "BF16", 1, 2, DType::bf16},
    {kQ4_0, "Q4_0", 32, 18, {}, DType::i4, 32, DType::f16},
    {kQ4_1, "Q4_1", 32, 20},
    {kQ5_0, "Q5_0", 32, 22, {}, DType::i8, 32, DType::f16},
    {kQ5_1, "Q5_1", 32, 24},
    {kQ8_0, "Q8_0", 32, 34, {}, DType::i8, 32, DType::f16},
    {kQ4_K, "Q4_K", 256, 144},
    {kQ5_K, "Q5_K", 256, 176},
    {kQ6_K, "Q6_K", 256, 210, {}, DType::i8, 16},
};

int byte_at(const std::byte* block, int64_t i) { return std::to_integer<int>(block[i]); }

float half_at(const std::byte* block, int64_t i) {
  return to_float(F16{static_cast<uint16_t>(byte_at(block, i) | byte_at(block, i + 1) << 8)});
}

// Sixteen bytes of nibbles: the low ones first, then the high ones.
int nibble(const std::byte* bytes, int64_t i) {
  return i < 16 ? byte_at(bytes, i) & 15 : byte_at(bytes, i - 16) >> 4;
}

// The fifth bit of element i, of 32 in four bytes.
int fifth_bit(const std::byte* bytes, int64_t i) { return byte_at(bytes, i / 8) >> (i % 8) & 1; }

// The 6-bit scale and smallest value of group j of eight, in twelve bytes.
struct ScaleAndMin {
  int scale, min;
};
ScaleAndMin scale_and_min(const std::byte* bytes, int64_t j) {
  if (j < 4) return {byte_at(bytes, j) & 63, byte_at(bytes, j + 4) & 63};
  const int both = byte_at(bytes, j + 4);
  return {(both & 15) | byte_at(bytes, j - 4) >> 6 << 4, both >> 4 | byte_at(bytes, j) >> 6 << 4};
}

// Codes of a block, and the scales of its groups; for types whose codes need no smallest value.
void read_codes(const BlockType& type, const std::byte* block, int16_t* codes, float* scale) {
  switch (type.number) {
    case kQ4_0:
      scale[0] = half_at(block, 0);
      for (int64_t i = 0; i < 32; ++i) codes[i] = static_cast<int16_t>(nibble(block + 2, i) - 8);
      return;
    case kQ5_0:
      scale[0] = half_at(block, 0);
      for (int64_t i = 0; i < 32; ++i) {
        codes[i] = static_cast<int16_t>((nibble(block + 6, i) | fifth_bit(block + 2, i) << 4) - 16);
      }
      return;
    case kQ8_0:
      scale[0] = half_at(block, 0);
      for (int64_t i = 0; i < 32; ++i) codes[i] = static_cast<int8_t>(byte_at(block, 2 + i));
      return;
    default: break;
  }
  // Q6_K: 128 bytes of low nibbles, 64 of upper pairs of bits, 16 scales, and one scale of those.
  const float d = half_at(block, 208);
  for (int64_t g = 0; g < 16; ++g) {
    scale[g] = d * static_cast<float>(static_cast<int8_t>(byte_at(block, 192 + g)));
  }
  for (int64_t i = 0; i < 256; ++i) {
    const int64_t half = i / 128, quarter = i % 128 / 32, place = i % 32;
    const int low = byte_at(block, 64 * half + 32 * (quarter % 2) + place);
    const int high = byte_at(block, 128 + 32 * half + place) >> (2 * quarter) & 3;
    codes[i] = static_cast<int16_t>(((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32);
  }
}

void read_values(const BlockType& type, const std::byte* block, float* out) {
  if (type.codes) {
    std::array<int16_t, 256> codes;
    std::array<float, 16> scale;
    read_codes(type, block, codes.data(), scale.data());
    for (int64_t i = 0; i < type.num_elements; ++i) {
      out[i] = static_cast<float>(codes[static_cast<size_t>(i)]) *
               scale[static_cast<size_t>(i / type.group)];
    }
    return;
  }
  if (type.number == kQ4_1 || type.number == kQ5_1) {
    const float d = half_at(block, 0), min = half_at(block, 2);
    const bool has_fifth = type.number == kQ5_1;
    for (int64_t i = 0; i < 32; ++i) {
      const int code =
          has_fifth ? nibble(block + 8, i) | fifth_bit(block + 4, i) << 4 : nibble(block + 4, i);
      out[i] = static_cast<float>(code) * d + min;
    }
    return;
  }
  // Q4_K and Q5_K: eight groups of 32; two groups share 32 bytes of nibbles.
  const float d = half_at(block, 0), dmin = half_at(block, 2);
  const bool has_fifth = type.number == kQ5_K;
  const std::byte* low = block + (has_fifth ? 48 : 16);
  for (int64_t g = 0; g < 8; ++g) {
    const ScaleAndMin both = scale_and_min(block + 4, g);
    const float scale = d * static_cast<float>(both.scale);
    const float min = dmin * static_cast<float>(both.min);
    for (int64_t i = 0; i < 32; ++i) {
      const int byte = byte_at(low, 32 * (g / 2) + i);
      int code = g % 2 == 0 ? byte & 15 : byte >> 4;
      if (has_fifth) code |= (byte_at(block, 16 + i) >> g & 1) << 4;
      out[32 * g + i] = scale * static_cast<float>(code) - min;
    }
  }
}

}  // namespace

std::span<const BlockType> block_types() { return kTypes; }

const BlockType* find_block_type(int number) {
  const auto found = std::ranges::find(kTypes, number, &BlockType::number);
  return found == std::end(kTypes) ? nullptr : &*found;
}

const BlockType& block_type(int number) {
  if (const BlockType* type = find_block_type(number)) return *type;
  std::string all;
  for (const BlockType& type : kTypes) all += concat(all.empty() ? "" : ", ", type.name);
  fail(concat("gguf: the element type number ", number, " is not supported; it may be one of ",
              all));
}

void decode_values(const BlockType& type, std::span<const std::byte> blocks, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  if (type.dtype) {
    const TensorView from =
        TensorView::contiguous(const_cast<std::byte*>(blocks.data()), *type.dtype, {count});
    return convert(from, TensorView::contiguous(out.data(), DType::f32, {count}));
  }
  for (int64_t block = 0; block < count / type.num_elements; ++block) {
    read_values(type, blocks.data() + block * type.num_bytes,
                out.data() + block * type.num_elements);
  }
}

void decode_codes(const BlockType& type, std::span<const std::byte> blocks, DecodedRows& rows) {
  rows.group = type.group;
  rows.num_groups = rows.num_cols / type.group;
  rows.codes.resize(static_cast<size_t>(rows.num_rows * rows.num_cols));
  rows.scale.resize(static_cast<size_t>(rows.num_rows * rows.num_groups));
  const int64_t groups = type.num_elements / type.group;
  for (int64_t block = 0; block < std::ssize(rows.codes) / type.num_elements; ++block) {
    read_codes(type, blocks.data() + block * type.num_bytes,
               rows.codes.data() + block * type.num_elements, rows.scale.data() + block * groups);
  }
}

}  // namespace tessera::model
