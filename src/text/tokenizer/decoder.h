// The decoder: what each token adds to the text, and what is stripped from the whole.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/file_node.h"
#include "text/tokenizer/pattern.h"

namespace tessera::tokenizer {

// Up to num_left of a character from the start of a text, and up to num_right from its end.
struct CharacterStrip {
  std::string character;
  int64_t num_left = 0;
  int64_t num_right = 0;
};

// Whatever a token adds depends on that token alone and on whether it is the first, so that ids
// can be decoded one at a time. Chains for which that does not hold are refused by name.
class Decoder {
 public:
  Decoder() = default;  // tokens with a space between them
  explicit Decoder(const FileNode& node);

  // The bytes of one token. They may be part of a character. Added tokens are text already, so
  // that the byte-level alphabet is not for them.
  std::string bytes_of(std::string_view token, bool is_first, bool is_added,
                       MatchBudget& budget) const;
  bool has_own_first() const;                             // whether is_first makes a difference
  const CharacterStrip& strip() const { return strip_; }  // of the whole text

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Metaspace {
    std::string replacement;
    bool strips_first;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Metaspace, CharacterStrip, Replacement>;
  // What the steps so far have made of the tokens.
  enum class Stage { tokens, bytes, whole };

  void add(const FileNode& node, Stage& stage);

  bool joins_with_space_ = true;
  std::vector<Step> steps_;
  CharacterStrip strip_;
};

}  // namespace tessera::tokenizer
