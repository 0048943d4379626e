// Words and bytes to codes.
// SPDX-License-Identifier: MIT
#include "model/formats/unpack.h"

#include <algorithm>
#include <cmath>

namespace tessera::model {
namespace {

// A transposition by blocks that stay in the first-level cache.
constexpr int64_t kBlock = 64;

constexpr int kAwqColumns[8] = {0, 2, 4, 6, 1, 3, 5, 7};

int16_t code_of(uint32_t word, int64_t place, int bits) {
  const uint32_t mask = (1u << bits) - 1;
  return static_cast<int16_t>(word >> (static_cast<uint32_t>(bits) * static_cast<uint32_t>(place)) &
                              mask);
}

}  // namespace

void unpack_rows(std::span<const uint32_t> words, int bits, int64_t num_rows, int64_t num_cols,
                 int16_t* codes) {
  const int64_t per_word = 32 / bits;
  const int64_t words_per_row = (num_cols + per_word - 1) / per_word;
  for (int64_t row = 0; row < num_rows; ++row) {
    const uint32_t* from = words.data() + row * words_per_row;
    for (int64_t col = 0; col < num_cols; ++col) {
      codes[row * num_cols + col] = code_of(from[col / per_word], col % per_word, bits);
    }
  }
}

void unpack_columns(std::span<const uint32_t> words, int bits, int64_t num_rows, int64_t num_cols,
                    int16_t* codes) {
  const int64_t per_word = 32 / bits;
  const int64_t word_rows = (num_rows + per_word - 1) / per_word;
  for (int64_t first = 0; first < num_cols; first += kBlock) {
    const int64_t last = std::min(num_cols, first + kBlock);
    for (int64_t word_row = 0; word_row < word_rows; ++word_row) {
      const int64_t row = word_row * per_word, count = std::min(per_word, num_rows - row);
      for (int64_t col = first; col < last; ++col) {
        const uint32_t word = words[static_cast<size_t>(word_row * num_cols + col)];
        int16_t* to = codes + col * num_rows + row;
        for (int64_t i = 0; i < count; ++i) to[i] = code_of(word, i, bits);
      }
    }
  }
}

void unpack_awq(std::span<const uint32_t> words, int64_t num_rows, int64_t num_cols,
                int16_t* codes) {
  for (int64_t first = 0; first < num_rows; first += kBlock) {
    const int64_t last = std::min(num_rows, first + kBlock);
    for (int64_t eighth = 0; eighth < num_cols / 8; ++eighth) {
      for (int64_t row = first; row < last; ++row) {
        const uint32_t word = words[static_cast<size_t>(row * (num_cols / 8) + eighth)];
        for (int i = 0; i < 8; ++i) {
          codes[(8 * eighth + kAwqColumns[i]) * num_rows + row] = code_of(word, i, 4);
        }
      }
    }
  }
}

void unpack_nibbles(std::span<const uint8_t> bytes, FirstNibble first, int16_t* codes) {
  const int shift = first == FirstNibble::low ? 0 : 4;
  for (size_t i = 0; i < bytes.size(); ++i) {
    codes[2 * i] = static_cast<int16_t>(bytes[i] >> shift & 15);
    codes[2 * i + 1] = static_cast<int16_t>(bytes[i] >> (4 - shift) & 15);
  }
}

float e8m0_value(uint8_t code) { return std::ldexp(1.0f, code - 127); }

}  // namespace tessera::model
