// Integer keys among which a query can choose exactly, whichever of them it sees.
// SPDX-License-Identifier: MIT
//
// The key at position j of its sequence is the digits of j in base 8, each as one of eight
// elements: k[8 n + digit n] = 1. A query can then choose its keys:
//   last     q[8 n + v] = (v - t_n) 8^n     scores j - t: the last key seen, t, has 0, those before
//                                           it less, and those behind, which are not seen, more
//   first    the same with its sign turned
//   target   q[8 n + v] = -(v != t_n)       key t has 0, all others -1 or less
//   block    without the lowest digit       the keys seen of t's eight, a power of two of them
//   uniform  0                              all keys seen, a power of two of them
// Scores that are not 0 are -1 or less. Times a scale of 512 their weights are 0 in float and the
// others equal: P is 1 before it is rounded, the sum a power of two, and out a sum of small
// integers over it. So nothing is rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bench/problems/builder.h"

namespace tessera::bench {

inline constexpr float kKeyCodeScale = 512;  // between neighbouring scores

class KeyCode {
 public:
  enum class Kind : uint8_t { last, first, target, block, uniform };
  struct Choice {
    Kind kind;
    int64_t target;
  };

  // Powers of 8 that a query's type can hold besides a digit; further ones go to the key.
  struct Split {
    int64_t query_digits;
    int64_t most_digits;
  };
  static constexpr Split kForFp8{3, 4};
  static constexpr Split kFor16Bits{5, 6};

  // Refuses more keys than d elements can distinguish.
  KeyCode(int64_t num_keys, int64_t d, Split split);

  // The d elements of key j and of a query. Heads and sequences are rotated against each other by
  // `turn`, so that another one's key does not match.
  void write_key(int64_t j, int64_t turn, std::span<float> elements) const;
  void write_query(Choice choice, int64_t turn, std::span<float> elements) const;

  // Chooses at random what a query that sees these keys (in ascending order) selects. Several keys
  // of equal weight are not chosen if an option distinguishes them.
  static Choice choose(std::span<const int64_t> seen, bool may_be_equal, Random random,
                       int64_t draw);

 private:
  static int64_t digit(int64_t j, int64_t n) { return (j >> (3 * n)) % 8; }
  size_t element(int64_t n, int64_t v, int64_t turn) const;

  int64_t d_;
  Split split_;
  int64_t num_digits_ = 1;
};

}  // namespace tessera::bench
