// What mma.sync and wgmma share: elements of fragments as numbers, and the product itself.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/emulator/types.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {

constexpr int kTileRows = 16;  // rows of A that a warp multiplies
constexpr int kMaxDepth = 32;  // elements of k, of one byte each
constexpr int kMaxColumns = 256;

// The types that can be multiplied: 8-bit integers too, whose values floats hold exactly.
bool is_factor(Type type);

// The elements in four bytes, the lowest first.
void unpack(Type type, uint32_t word, float* values);

using TileA = float[kTileRows][kMaxDepth];

// A in registers, as mma.sync and wgmma take it: lane l holds elements of rows l / 4 and l / 4 + 8.
void read_a(Warp& warp, std::span<const uint32_t> registers, Type type, int depth, TileA& a);

// d += a * b for 16 rows: b is [depth][columns], d is [16][columns]. Sums are exact to double
// precision and rounded once, where a tensor core cuts off low bits of every addend.
void multiply(const TileA& a, const float* b, int columns, int depth, float* d);
// The same of integers: d holds the bits of int32.
void multiply_integers(const TileA& a, const float* b, int columns, int depth, float* d);

}  // namespace tessera::emulator
