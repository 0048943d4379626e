// The tokens by id and by text, and the special tokens put around a single text.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {

class Vocabulary {
 public:
  using Entries = std::vector<std::pair<std::string, int64_t>>;

  // Refuses ids that are negative, far above the number of tokens or used twice, and texts with two
  // ids.
  Vocabulary(Entries entries, std::span<const AddedToken> added, std::string_view origin);
  Vocabulary(const Vocabulary&) = delete;  // ids_ has views of the texts
  Vocabulary& operator=(const Vocabulary&) = delete;

  int32_t num_ids() const { return static_cast<int32_t>(tokens_.size()); }
  bool has(int64_t id) const { return id >= 0 && id < num_ids() && at(id).is_known; }
  std::string_view text(int64_t id) const { return has(id) ? at(id).text : std::string_view(); }
  bool is_special(int64_t id) const { return has(id) && at(id).is_special; }
  bool is_added(int64_t id) const { return has(id) && at(id).is_added; }

  std::optional<int32_t> find(std::string_view text) const;  // model and added tokens
  std::optional<int32_t> find_model(
      std::string_view text) const;  // model tokens only: what merging can produce

 private:
  struct Token {
    std::string text;
    bool is_known = false;
    bool is_special = false;
    bool is_added = false;
    bool is_model = false;
  };
  const Token& at(int64_t id) const { return tokens_[static_cast<size_t>(id)]; }
  void add(std::string text, int64_t id, std::string_view origin);

  std::vector<Token> tokens_;
  std::unordered_map<std::string_view, int32_t> ids_;
};

struct Affixes {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

// Reads the post-processor. Refuses templates with ids that are not in the vocabulary.
Affixes read_post_processor(const FileNode& node, const Vocabulary& vocabulary);

}  // namespace tessera::tokenizer
