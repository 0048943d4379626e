// Reads a JSON schema from each line of its input and prints texts drawn at random under it, one
// a line as a JSON string, then "--". A refused schema prints "refused: ..." instead.
// Usage: tessera_schema_samples COUNT SEED < schemas
// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tessera/core/error.h"
#include "tests/grammar/walk.h"

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc != 3) {
    std::cerr << "usage: tessera_schema_samples COUNT SEED < schemas\n";
    return 2;
  }
  const int count = std::atoi(argv[1]);
  std::mt19937 random(static_cast<uint32_t>(std::atoi(argv[2])));
  std::string line;
  while (std::getline(std::cin, line)) {
    try {
      const auto whitespace = static_cast<int32_t>(random() % 2 * 2);
      grammar::TokenMasks masks(Constraint::compile({.text = line, .max_whitespace = whitespace}),
                                grammar::testing::bundled_tries());
      for (int i = 0; i < count; ++i) {
        const grammar::testing::Walk walk = grammar::testing::random_walk(masks, random);
        if (walk.is_complete) std::cout << nlohmann::json(walk.text).dump() << "\n";
      }
    } catch (const Error& error) {
      std::cout << "refused: " << error.what() << "\n";
    }
    std::cout << "--\n";
  }
  return 0;
}
