// The pre-tokenizer: splits text into words, which the model encodes one by one.
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {

struct Piece {
  std::string_view text;
  bool is_first = false;   // at the start of the whole text
  bool continues = false;  // follows bytes that are not UTF-8: gets no prefix
  bool is_valid = true;    // UTF-8; other bytes are changed by byte-level steps only
};

// Every pre-tokenizer type is made of four kinds of step:
//   ByteLevel  prefix " ", split by the pattern of GPT-2, map bytes to characters
//   Metaspace  spaces to "▁", prefix "▁", split before each "▁"
//   others     one split
// Pieces pass through the steps depth first, so a long text needs no list of its words.
class PreTokenizer {
 public:
  using Sink = std::function<void(const Piece&)>;

  PreTokenizer() = default;  // one word
  explicit PreTokenizer(const FileNode& node);

  // A piece is valid only during the call of `sink`, and never empty.
  void split(const Piece& piece, MatchBudget& budget, const Sink& sink) const;

 private:
  enum class Behavior { isolated, removed, merged_with_previous, merged_with_next, contiguous };
  struct Prefix {
    std::string text;
    bool only_first;
  };
  struct ReplaceSpaces {
    std::string by;
  };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool is_inverted;  // the text between the matches counts as matched
  };
  struct MapBytes {};
  using Step = std::variant<Prefix, ReplaceSpaces, Split, MapBytes>;

  struct Run;    // one call of split
  class Joiner;  // ranges to pieces, by behavior
  static Behavior read_behavior(const FileNode& node);
  void add(const FileNode& node);
  void add_byte_level(const FileNode& node);
  void add_metaspace(const FileNode& node);

  std::vector<Step> steps_;
};

}  // namespace tessera::tokenizer
