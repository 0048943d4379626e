// Set operations on ranges of characters, and their split into UTF-8 byte ranges.
// SPDX-License-Identifier: MIT
#include "grammar/code_set.h"

#include <algorithm>

namespace tessera::grammar {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;
constexpr CodeRange kSurrogates{0xD800, 0xDFFF};

int utf8_bytes(char32_t code, std::array<uint8_t, 4>& bytes) {
  const auto tail = [&](int shift) {
    return static_cast<uint8_t>(0x80u | (code >> shift & 0x3Fu));
  };
  if (code < 0x80) {
    bytes[0] = static_cast<uint8_t>(code);
    return 1;
  }
  if (code < 0x800) {
    bytes = {static_cast<uint8_t>(0xC0u | code >> 6), tail(0)};
    return 2;
  }
  if (code < 0x10000) {
    bytes = {static_cast<uint8_t>(0xE0u | code >> 12), tail(6), tail(0)};
    return 3;
  }
  bytes = {static_cast<uint8_t>(0xF0u | code >> 18), tail(12), tail(6), tail(0)};
  return 4;
}

// Splits a range until all its members differ only in whole trailing bytes.
void split(CodeRange range, std::vector<ByteSequence>& out) {
  for (const char32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (range.first <= last && range.last > last) {
      split({range.first, last}, out);
      return split({last + 1, range.last}, out);
    }
  }
  if (range.last >= 0x80) {
    for (int shift = 6; shift <= 18; shift += 6) {
      const char32_t mask = (char32_t{1} << shift) - 1;
      if ((range.first & ~mask) == (range.last & ~mask)) continue;
      if ((range.first & mask) != 0) {
        split({range.first, range.first | mask}, out);
        return split({(range.first | mask) + 1, range.last}, out);
      }
      if ((range.last & mask) != mask) {
        split({range.first, (range.last & ~mask) - 1}, out);
        return split({range.last & ~mask, range.last}, out);
      }
    }
  }
  std::array<uint8_t, 4> low{}, high{};
  ByteSequence sequence;
  sequence.size = utf8_bytes(range.first, low);
  utf8_bytes(range.last, high);
  for (size_t i = 0; i < 4; ++i) sequence.ranges[i] = {low[i], high[i]};
  out.push_back(sequence);
}

}  // namespace

void CodeSet::normalize() {
  std::vector<CodeRange> parts;
  for (const CodeRange& range : ranges_) {
    const CodeRange low{range.first, std::min<char32_t>(range.last, kSurrogates.first - 1)};
    const CodeRange high{std::max<char32_t>(range.first, kSurrogates.last + 1),
                         std::min(range.last, kLastCode)};
    if (low.first <= low.last) parts.push_back(low);
    if (high.first <= high.last) parts.push_back(high);
  }
  std::ranges::sort(parts, {}, &CodeRange::first);
  ranges_.clear();
  for (const CodeRange& range : parts) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

void CodeSet::add(const CodeSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

CodeSet CodeSet::inverse() const {
  CodeSet result;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) result.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) result.ranges_.push_back({next, kLastCode});
  result.normalize();
  return result;
}

CodeSet CodeSet::without(const CodeSet& other) const {
  CodeSet result = inverse();
  result.add(other);
  return result.inverse();
}

std::vector<ByteSequence> utf8_sequences(const CodeSet& set) {
  std::vector<ByteSequence> sequences;
  for (const CodeRange& range : set.ranges()) split(range, sequences);
  return sequences;
}

}  // namespace tessera::grammar
