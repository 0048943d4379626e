// The normalizer: text to text, before anything is split.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` must be valid UTF-8. O(n log n) in the longest run of combining marks, whatever the text.
// NFC leaves text alone that is in NFC already, and recomposes only the parts that may not be.
std::string normalize(std::string_view text, NormalForm form);

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(const FileNode& node);

  bool is_identity() const { return steps_.empty(); }
  // `text` must be valid UTF-8. If `continues`, it follows bytes that are not UTF-8, and nothing is
  // prepended to it.
  std::string apply(std::string_view text, bool continues, MatchBudget& budget) const;

 private:
  struct Prepend {
    std::string text;
  };
  struct Strip {
    bool is_left;
    bool is_right;
  };
  struct Lowercase {};
  struct StripAccents {};
  using Step = std::variant<NormalForm, Prepend, Strip, Lowercase, StripAccents, Replacement>;

  static Step read_step(const FileNode& node);

  std::vector<Step> steps_;
};

}  // namespace tessera::tokenizer
