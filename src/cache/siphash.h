// SipHash-2-4 with 128 bits of output: a keyed hash whose collisions cannot be constructed without
// the key.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::cache {

struct Digest {
  uint64_t low = 0;  // bytes 0 to 7 of the output, little-endian
  uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};

// After Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), and its 128-bit variant.
// Bytes may be added in pieces of any length; the result depends on their concatenation alone.
class SipHash {
 public:
  explicit SipHash(const std::array<uint64_t, 2>& key);
  void add(std::span<const std::byte> bytes);
  Digest finish();  // once, after the last add

 private:
  void round();
  void compress(uint64_t word);

  std::array<uint64_t, 4> v_;
  uint64_t word_ = 0;  // bytes that do not fill a word yet, lowest first
  uint64_t num_bytes_ = 0;
};

}  // namespace tessera::cache
