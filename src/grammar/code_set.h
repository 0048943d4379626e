// Sets of Unicode characters, and their UTF-8 forms as sequences of byte ranges.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace tessera::grammar {

struct CodeRange {
  char32_t first = 0;
  char32_t last = 0;
};

// A set of Unicode scalar values: surrogates are never members.
class CodeSet {
 public:
  CodeSet() = default;
  CodeSet(std::initializer_list<CodeRange> ranges) : ranges_(ranges) { normalize(); }
  explicit CodeSet(std::vector<CodeRange> ranges) : ranges_(std::move(ranges)) { normalize(); }
  static CodeSet all() { return {{0, 0x10FFFF}}; }

  void add(const CodeSet& other);
  CodeSet inverse() const;
  CodeSet without(const CodeSet& other) const;
  bool is_empty() const { return ranges_.empty(); }
  const std::vector<CodeRange>& ranges() const { return ranges_; }  // ascending, apart

 private:
  void normalize();
  std::vector<CodeRange> ranges_;
};

// One to four ranges of bytes; every choice of bytes from them is a character.
struct ByteSequence {
  struct Range {
    uint8_t first = 0;
    uint8_t last = 0;
  };
  std::array<Range, 4> ranges = {};
  int size = 0;
};

// The UTF-8 forms of the members, without overlap.
std::vector<ByteSequence> utf8_sequences(const CodeSet& set);

}  // namespace tessera::grammar
