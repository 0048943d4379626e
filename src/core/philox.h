// Philox 4x32-10: random numbers as a function of a key and a counter, with no state.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace tessera {

struct PhiloxWords {
  uint32_t words[4];

  bool operator==(const PhiloxWords&) const = default;
};

// Ten rounds of multiplications on four words: Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (2011). Passes the usual statistical tests; not for cryptography.
constexpr PhiloxWords philox(PhiloxWords counter, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  uint32_t(&c)[4] = counter.words;
  for (int round = 0; round < 10; ++round) {
    const uint64_t low = uint64_t{0xD2511F53} * c[0];
    const uint64_t high = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t c1 = c[1];
    const uint32_t c3 = c[3];
    c[0] = static_cast<uint32_t>(high >> 32) ^ c1 ^ k0;
    c[1] = static_cast<uint32_t>(high);
    c[2] = static_cast<uint32_t>(low >> 32) ^ c3 ^ k1;
    c[3] = static_cast<uint32_t>(low);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter;
}

}  // namespace tessera
