// The normalizer of a tokenizer: text to text, before anything is split.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/file_node.h"
#include "text/tokenizer/normal_form.h"
#include "text/tokenizer/pattern.h"

namespace tessera::tokenizer {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  explicit Normalizer(const FileNode& node);

  bool is_identity() const { return steps_.empty(); }
  // Of valid UTF-8. `continues` says that the text goes on after bytes that are not UTF-8, so that
  // nothing is put before it.
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
