// Added tokens: literals that are found in a text before any other step.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {

struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;   // searched for in normalised text
  bool is_single_word = false;  // only if no word character is next to it
  bool strips_left = false;     // absorbs white space before it
  bool strips_right = false;    // absorbs white space after it
};

std::vector<AddedToken> read_added_tokens(const FileNode& root);

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// Finds tokens in a text: the longest one at the leftmost position. The literals are sorted, and
// the range of those that match narrows byte by byte, as in a trie. Linear in the text, since a
// literal has at most 512 bytes.
class TokenFinder {
 public:
  explicit TokenFinder(std::vector<AddedToken> tokens = {});

  bool is_empty() const { return tokens_.empty(); }

  // Calls on_text(range) and on_token(id) in the order of the text; no range is empty. Special
  // tokens are found only where the whole literal lies in one range of `control`, which is sorted.
  void split(std::string_view text, std::span<const TextRange> control,
             const std::function<void(TextRange)>& on_text,
             const std::function<void(int32_t)>& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t pos, size_t control_end) const;

  std::vector<AddedToken> tokens_;  // sorted by content
  std::array<bool, 256> is_first_byte_{};
};

}  // namespace tessera::tokenizer
