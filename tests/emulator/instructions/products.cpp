// Products of tiles, as mma.sync and wgmma share them.
// SPDX-License-Identifier: MIT
#include "tests/emulator/instructions/products.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tests/emulator/small_floats.h"

namespace tessera::emulator {
namespace {

// Values of small types by their bits, since products ask for millions of them.
struct Tables {
  std::array<float, 256> e4m3, e5m2;
  std::vector<float> f16;

  Tables() : f16(1 << 16) {
    for (size_t i = 0; i < e4m3.size(); ++i) {
      e4m3[i] = from_e4m3(static_cast<uint8_t>(i));
      e5m2[i] = from_e5m2(static_cast<uint8_t>(i));
    }
    for (size_t i = 0; i < f16.size(); ++i) f16[i] = from_f16(static_cast<uint16_t>(i));
  }
};

const Tables& tables() {
  static const Tables instance;
  return instance;
}

}  // namespace

bool is_factor(Type type) {
  switch (type) {
    case Type::f16:
    case Type::bf16:
    case Type::tf32:
    case Type::e4m3:
    case Type::e5m2:
    case Type::s8:
    case Type::u8: return true;
    default: return false;
  }
}

void unpack(Type type, uint32_t word, float* values) {
  const auto bytes = [&](const auto& value_of) {
    for (int i = 0; i < 4; ++i) values[i] = value_of(static_cast<uint8_t>(word >> 8 * i));
  };
  switch (type) {
    case Type::f16:
      values[0] = tables().f16[word & 0xffff];
      values[1] = tables().f16[word >> 16];
      break;
    case Type::bf16:
      values[0] = std::bit_cast<float>(word << 16);
      values[1] = std::bit_cast<float>(word & 0xffff0000);
      break;
    case Type::tf32: values[0] = std::bit_cast<float>(word & ~uint32_t{0x1fff}); break;
    case Type::e4m3: bytes([](uint8_t byte) { return tables().e4m3[byte]; }); break;
    case Type::e5m2: bytes([](uint8_t byte) { return tables().e5m2[byte]; }); break;
    case Type::s8:
      bytes([](uint8_t byte) { return static_cast<float>(static_cast<int8_t>(byte)); });
      break;
    default: bytes([](uint8_t byte) { return static_cast<float>(byte); });
  }
}

void read_a(Warp& warp, std::span<const uint32_t> registers, Type type, int depth, TileA& a) {
  const int bytes = bytes_of(type);
  const int num_registers = 2 * depth * bytes / 16;
  for (int i = 0; i < num_registers; ++i) {
    const uint32_t* const words = warp.reg<uint32_t>(registers[static_cast<size_t>(i)]);
    for (int lane = 0; lane < kWarpLanes; ++lane) {
      const int row = lane / 4 + 8 * (i % 2), byte = 4 * (lane % 4) + 16 * (i / 2);
      unpack(type, words[lane], &a[row][byte / bytes]);
    }
  }
}

void multiply(const TileA& a, const float* b, int columns, int depth, float* d) {
  std::array<double, kMaxColumns> sums;
  for (int row = 0; row < kTileRows; ++row) {
    std::fill_n(sums.begin(), columns, 0.0);
    for (int k = 0; k < depth; ++k) {
      const double factor = a[row][k];
      const float* const b_row = b + k * columns;
      for (int i = 0; i < columns; ++i) sums[static_cast<size_t>(i)] += factor * b_row[i];
    }
    float* const d_row = d + row * columns;
    for (int i = 0; i < columns; ++i) {
      d_row[i] = static_cast<float>(sums[static_cast<size_t>(i)] + d_row[i]);
    }
  }
}

void multiply_integers(const TileA& a, const float* b, int columns, int depth, float* d) {
  std::array<uint32_t, kMaxColumns> sums;  // they wrap
  for (int row = 0; row < kTileRows; ++row) {
    float* const d_row = d + row * columns;
    for (int i = 0; i < columns; ++i) {
      sums[static_cast<size_t>(i)] = std::bit_cast<uint32_t>(d_row[i]);
    }
    for (int k = 0; k < depth; ++k) {
      const auto factor = static_cast<int32_t>(a[row][k]);
      const float* const b_row = b + k * columns;
      for (int i = 0; i < columns; ++i) {
        sums[static_cast<size_t>(i)] +=
            static_cast<uint32_t>(factor * static_cast<int32_t>(b_row[i]));
      }
    }
    for (int i = 0; i < columns; ++i) {
      d_row[i] = std::bit_cast<float>(sums[static_cast<size_t>(i)]);
    }
  }
}

}  // namespace tessera::emulator
