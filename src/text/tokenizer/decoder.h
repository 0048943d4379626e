// The decoder: what each token adds to the text, and what is stripped from the whole text.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {

// Strips up to num_left copies of a character from the start of a text and num_right from its end.
struct CharacterStrip {
  std::string character;
  int64_t num_left = 0;
  int64_t num_right = 0;
};

// What a token adds depends only on the token and on whether it comes first, so ids can be decoded
// one at a time. Decoders for which that does not hold are refused by name.
class Decoder {
 public:
  Decoder() = default;  // joins tokens with spaces
  explicit Decoder(const FileNode& node);

  // The bytes of one token, which may be part of a character. Added tokens are plain text: the
  // byte-level alphabet does not apply to them.
  std::string bytes_of(std::string_view token, bool is_first, bool is_added,
                       MatchBudget& budget) const;
  bool has_own_first() const;                             // whether is_first matters
  const CharacterStrip& strip() const { return strip_; }  // of the whole text

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Metaspace {
    std::string replacement;
    bool strips_first;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Metaspace, CharacterStrip, Replacement>;
  // What the steps so far have turned the tokens into.
  enum class Stage { tokens, bytes, whole };

  void add(const FileNode& node, Stage& stage);

  bool joins_with_space_ = true;
  std::vector<Step> steps_;
  CharacterStrip strip_;
};

}  // namespace tessera::tokenizer
