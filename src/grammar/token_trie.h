// The vocabulary as a trie of bytes: what each token adds to a text.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer.h"

namespace tessera::grammar {

// Nodes in depth-first order, so that a walk reads forwards and skips a branch by its end.
class TokenTrie {
 public:
  struct Node {
    uint8_t byte = 0;
    int32_t depth = 0;        // bytes from the root, this one included
    int32_t end = 0;          // the node after this one's branch
    int32_t first_token = 0;  // tokens that end here, up to the next node's first
  };

  // texts[id] is what token `id` adds; tokens that add nothing are left out.
  explicit TokenTrie(std::vector<std::string> texts);

  int64_t num_ids() const { return std::ssize(texts_); }
  std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  std::span<const Node> nodes() const { return std::span(nodes_).first(nodes_.size() - 1); }
  std::span<const int32_t> tokens(int32_t node) const { return tokens_in(node, node + 1); }
  // The tokens of a whole branch.
  std::span<const int32_t> tokens_of_branch(int32_t node) const {
    return tokens_in(node, nodes_[static_cast<size_t>(node)].end);
  }

 private:
  std::span<const int32_t> tokens_in(int32_t first, int32_t last) const {
    const auto begin = static_cast<size_t>(nodes_[static_cast<size_t>(first)].first_token);
    const auto end = static_cast<size_t>(nodes_[static_cast<size_t>(last)].first_token);
    return std::span(tokens_).subspan(begin, end - begin);
  }

  std::vector<std::string> texts_;
  std::vector<Node> nodes_;      // and one more, which ends the tokens of the last
  std::vector<int32_t> tokens_;  // by the node they end at
};

// A tokenizer's vocabulary. The first token of a text may lose a space, so it has a trie of its own
// where that makes a difference. Special tokens add nothing.
struct VocabularyTries {
  explicit VocabularyTries(const Tokenizer& tokenizer);

  const TokenTrie& of(bool is_first) const { return is_first && !first.empty() ? first[0] : rest; }

  TokenTrie rest;
  std::vector<TokenTrie> first;  // one, or none if the first token is like the others
};

}  // namespace tessera::grammar
