// The pre-tokenizer: text to words, which the model then encodes one by one.
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/file_node.h"
#include "text/tokenizer/pattern.h"

namespace tessera::tokenizer {

struct Piece {
  std::string_view text;
  bool is_first = false;   // where the whole text begins
  bool continues = false;  // follows bytes that are not UTF-8: nothing is put before it
  bool is_valid = true;    // UTF-8; otherwise bytes that only a byte-level step changes
};

// Every type of the format is made of four kinds of step:
//   ByteLevel  prefix " ", split by the pattern of GPT-2, map bytes to characters
//   Metaspace  spaces to "▁", prefix "▁", split before each "▁"
//   others     one split
// Pieces go depth first through the steps, so that a long text needs no list of its words.
class PreTokenizer {
 public:
  using Sink = std::function<void(const Piece&)>;

  PreTokenizer() = default;  // one word
  explicit PreTokenizer(const FileNode& node);

  // What `sink` is given is valid during its call only, and never empty.
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
    bool is_inverted;  // what lies between the matches counts as matched
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
