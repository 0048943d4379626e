// Random requests of every kind that the engine takes, for a run of hours.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::soak {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool one_in(int64_t count) { return operator()(1, count) == 1; }
  template <class T>
  const T& of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(operator()(0, std::ssize(choices) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

// Greedy requests whose answers must be the same whenever they are asked. They share prefixes.
std::vector<Request> make_probes(const Tokenizer& tokenizer);

// Prompts with and without shared prefixes, every sampling setting, siblings, beams, priorities,
// stop strings and tokens, and deadlines that are kept or missed.
Request make_random(Dice& dice, const Tokenizer& tokenizer, int64_t max_context);

// Spoils a request so that submit must refuse it.
void spoil(Dice& dice, Request& request, int64_t vocab, int64_t max_context);

}  // namespace tessera::soak
