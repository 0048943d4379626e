// Codes out of the 32-bit words of GPTQ, AWQ and compressed-tensors files. Every function writes
// codes without sign, and reads words whose least significant bits come first.
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

}  // namespace tessera::model
