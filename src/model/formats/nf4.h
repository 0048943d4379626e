// The 4-bit floats of bitsandbytes: nibbles that choose one of 16 values, times a largest value for
// each block, which may itself be quantised.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

namespace tessera::model {

// Elements [first, first + out.size()), counted over the whole tensor, as floats: `bytes` begins
// with the byte of element `first`, which is even; absmax[0] is the largest value of the block of
// `first`. The first element of a byte is in its high nibble.
void decode_nf4(std::span<const uint8_t> bytes, std::span<const float> table,
                std::span<const float> absmax, int64_t block, int64_t first, std::span<float> out);

// Largest values that are quantised: table[code] * scale of its block, plus offset.
void decode_nested(std::span<const uint8_t> codes, std::span<const float> table,
                   std::span<const float> scale, int64_t block, float offset, std::span<float> out);

}  // namespace tessera::model
