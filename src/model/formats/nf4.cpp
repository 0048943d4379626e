// NF4 to floats.
// SPDX-License-Identifier: MIT
#include "model/formats/nf4.h"

namespace tessera::model {

void decode_nf4(std::span<const uint8_t> bytes, std::span<const float> table,
                std::span<const float> absmax, int64_t block, int64_t first, std::span<float> out) {
  const int64_t first_block = first / block;
  for (size_t i = 0; i < out.size(); ++i) {
    const uint8_t byte = bytes[i / 2];
    const auto code = static_cast<size_t>(i % 2 == 0 ? byte >> 4 : byte & 15);
    const int64_t place = (first + static_cast<int64_t>(i)) / block - first_block;
    out[i] = table[code] * absmax[static_cast<size_t>(place)];
  }
}

void decode_nested(std::span<const uint8_t> codes, std::span<const float> table,
                   std::span<const float> scale, int64_t block, float offset,
                   std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = table[codes[i]] * scale[i / static_cast<size_t>(block)] + offset;
  }
}

}  // namespace tessera::model
