// The block formats of GGUF files: codes and scales of 32 or 256 elements along k.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/formats/decoded_rows.h"
#include "tessera/core/dtype.h"

namespace tessera::model {

// A type of elements, by its number in the file. A type without blocks has blocks of one element,
// and a dtype. Q4_1, Q5_1, Q4_K and Q5_K add a float to every group, which integer zero points do
// not express: they become values.
struct BlockType {
  int number;
  std::string_view name;
  int64_t num_elements;             // of a block
  int64_t num_bytes;                // of a block
  std::optional<DType> dtype = {};  // of elements that are no codes
  std::optional<DType> codes = {};  // that hold it exactly: i4 or i8, without zero points
  int64_t group = 0;                // elements per scale of these codes
  DType scale = DType::f32;         // f16 if the file has the scale itself, not two factors
};

std::span<const BlockType> block_types();
const BlockType* find_block_type(int number);  // null where it is not supported
const BlockType& block_type(int number);       // refuses a number that is not

// Whole rows of blocks as values: `blocks` holds out.size() elements.
void decode_values(const BlockType& type, std::span<const std::byte> blocks, std::span<float> out);
// The same as codes, for types that have them: rows.num_rows rows of rows.num_cols elements. Fills
// everything else of `rows`.
void decode_codes(const BlockType& type, std::span<const std::byte> blocks, DecodedRows& rows);

}  // namespace tessera::model
