// The rounds of Philox 4x32-10, and the numbers the sampler draws from them.
// SPDX-License-Identifier: MIT
#include "engine/sampling/philox.h"

#include "engine/sampling/sampler.h"

namespace tessera::engine {
namespace {

uint32_t low_word(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t high_word(uint64_t value) { return static_cast<uint32_t>(value >> 32); }

std::array<uint32_t, 4> block_of(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return philox({low_word(counter_low), high_word(counter_low), low_word(counter_high),
                 high_word(counter_high)},
                {low_word(key), high_word(key)});
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xd2511f53} * counter[0];
    const uint64_t odd = uint64_t{0xcd9e8d57} * counter[2];
    counter = {high_word(odd) ^ counter[1] ^ key[0], low_word(odd),
               high_word(even) ^ counter[3] ^ key[1], low_word(even)};
    key[0] += 0x9e3779b9;  // the golden ratio
    key[1] += 0xbb67ae85;  // the square root of three, less one
  }
  return counter;
}

uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return block_of(key, counter_high, counter_low)[0];
}

double random_uniform(uint64_t seed, int32_t sequence, int64_t position) {
  const std::array<uint32_t, 4> words =
      block_of(seed, static_cast<uint64_t>(sequence), static_cast<uint64_t>(position));
  // 52 bits and a half: exact in a double, never 0 and never 1.
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace tessera::engine
