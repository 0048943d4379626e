// The numbers the sampler draws: words of Philox, as a function of seed and counter alone.
// SPDX-License-Identifier: MIT
#include "core/philox.h"
#include "engine/sampling/sampler.h"

namespace tessera::engine {
namespace {

PhiloxWords block_of(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return philox({{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                  static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}},
                key);
}

}  // namespace

uint32_t random_bits(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  return block_of(key, counter_high, counter_low).words[0];
}

double random_uniform(uint64_t seed, int32_t sequence, int64_t position) {
  const PhiloxWords block =
      block_of(seed, static_cast<uint64_t>(sequence), static_cast<uint64_t>(position));
  // 52 bits and a half: exact in a double, never 0 and never 1.
  const uint64_t bits = (uint64_t{block.words[0]} << 32 | block.words[1]) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace tessera::engine
