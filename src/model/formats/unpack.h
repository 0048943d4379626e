// Codes out of the 32-bit words of GPTQ, AWQ and compressed-tensors files, and out of bytes. Every
// function writes codes without sign, and reads words whose least significant bits come first.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

namespace tessera::model {

// Rows of words, each of which holds the codes of one row in order: [rows, words_per_row] to
// [rows, cols]. `bits` is 4 or 8, as everywhere below.
void unpack_rows(std::span<const uint32_t> words, int bits, int64_t num_rows, int64_t num_cols,
                 int16_t* codes);

// Words that hold the codes of one column in order: [rows * bits / 32, cols] to the transposed
// [cols, rows]. GPTQ's qweight, which is [k * bits / 32, n], becomes [n, k].
void unpack_columns(std::span<const uint32_t> words, int bits, int64_t num_rows, int64_t num_cols,
                    int16_t* codes);

// AWQ: words [rows, cols / 8] whose eight codes are columns 0, 2, 4, 6, 1, 3, 5, 7 of eight, to the
// transposed [cols, rows].
void unpack_awq(std::span<const uint32_t> words, int64_t num_rows, int64_t num_cols,
                int16_t* codes);

// Two codes of 4 bits in a byte, the first of them in its low nibble or in its high one.
enum class FirstNibble : uint8_t { low, high };
void unpack_nibbles(std::span<const uint8_t> bytes, FirstNibble first, int16_t* codes);

// A scale of the microscaling formats, 2^(code - 127). 255 is NaN, which callers refuse.
inline constexpr uint8_t kE8m0Nan = 255;
float e8m0_value(uint8_t code);

}  // namespace tessera::model
