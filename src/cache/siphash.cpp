// The rounds of SipHash-2-4: two per word of input, four per half of the output.
// SPDX-License-Identifier: MIT
#include "cache/siphash.h"

#include <bit>

namespace tessera::cache {
namespace {

// Shifts make the result independent of the machine's byte order; compilers turn them into one
// load.
uint64_t little_endian(const std::byte* bytes) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return word;
}

}  // namespace

SipHash::SipHash(const std::array<uint64_t, 2>& key)
    : v_{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d ^ 0xee,
         key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573} {}

void SipHash::round() {
  v_[0] += v_[1];
  v_[2] += v_[3];
  v_[1] = std::rotl(v_[1], 13) ^ v_[0];
  v_[3] = std::rotl(v_[3], 16) ^ v_[2];
  v_[0] = std::rotl(v_[0], 32);
  v_[2] += v_[1];
  v_[0] += v_[3];
  v_[1] = std::rotl(v_[1], 17) ^ v_[2];
  v_[3] = std::rotl(v_[3], 21) ^ v_[0];
  v_[2] = std::rotl(v_[2], 32);
}

void SipHash::compress(uint64_t word) {
  v_[3] ^= word;
  round();
  round();
  v_[0] ^= word;
}

void SipHash::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t offset = num_bytes_ % 8;
    if (offset == 0 && bytes.size() >= 8) {
      compress(little_endian(bytes.data()));
      num_bytes_ += 8;
      bytes = bytes.subspan(8);
      continue;
    }
    word_ |= std::to_integer<uint64_t>(bytes.front()) << (8 * offset);
    ++num_bytes_;
    bytes = bytes.subspan(1);
    if (offset == 7) {
      compress(word_);
      word_ = 0;
    }
  }
}

Digest SipHash::finish() {
  const auto half = [this] {
    for (int i = 0; i < 4; ++i) round();
    return v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
  };
  compress(word_ | num_bytes_ << 56);
  v_[2] ^= 0xee;
  const uint64_t low = half();
  v_[1] ^= 0xdd;
  return {low, half()};
}

}  // namespace tessera::cache
