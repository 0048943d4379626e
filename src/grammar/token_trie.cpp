// The trie of a vocabulary, built from its sorted texts.
// SPDX-License-Identifier: MIT
#include "grammar/token_trie.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::grammar {
namespace {

std::vector<std::string> texts_of(const Tokenizer& tokenizer, bool is_first) {
  std::vector<std::string> texts;
  texts.reserve(static_cast<size_t>(tokenizer.num_ids()));
  for (int32_t id = 0; id < tokenizer.num_ids(); ++id) {
    texts.push_back(tokenizer.token_bytes(id, is_first));
  }
  return texts;
}

}  // namespace

TokenTrie::TokenTrie(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::vector<int32_t> order(texts_.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t id) { return text(id).empty(); });
  std::ranges::stable_sort(order, {}, [&](int32_t id) { return text(id); });
  std::vector<int32_t> path;  // nodes from the root to the last one made
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[static_cast<size_t>(path.back())].end = static_cast<int32_t>(nodes_.size());
    }
  };
  std::string_view last;
  for (const int32_t id : order) {
    const std::string_view bytes = text(id);
    const auto [a, b] = std::ranges::mismatch(last, bytes);
    close(static_cast<size_t>(b - bytes.begin()));
    for (size_t i = path.size(); i < bytes.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(bytes[i]),
                        .depth = static_cast<int32_t>(i + 1),
                        .first_token = static_cast<int32_t>(tokens_.size())});
    }
    tokens_.push_back(id);
    last = bytes;
  }
  close(0);
  nodes_.push_back({.first_token = static_cast<int32_t>(tokens_.size())});
}

VocabularyTries::VocabularyTries(const Tokenizer& tokenizer) : rest(texts_of(tokenizer, false)) {
  std::vector<std::string> texts = texts_of(tokenizer, true);
  for (int32_t id = 0; id < tokenizer.num_ids(); ++id) {
    if (texts[static_cast<size_t>(id)] == rest.text(id)) continue;
    first.emplace_back(std::move(texts));
    return;
  }
}

}  // namespace tessera::grammar
