// Checking and indexing the tokens of a file.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/file_node.h"

namespace tessera::tokenizer {
namespace {

constexpr int64_t kMaxHoles = 65'536;  // ids without a token; a large id must not take memory

}  // namespace

Vocabulary::Vocabulary(Entries entries, std::span<const AddedToken> added,
                       std::string_view origin) {
  const int64_t num_entries = static_cast<int64_t>(entries.size() + added.size());
  const int64_t max_ids = 2 * num_entries + kMaxHoles;
  int64_t num_ids = 0;
  const auto measure = [&](const std::string& text, int64_t id) {
    if (id < 0 || id >= max_ids) {
      fail(concat(origin, ": the id of token ", in_quotes(text), " is ", id, "; a file of ",
                  num_entries, " tokens may have ids from 0 to ", max_ids - 1));
    }
    num_ids = std::max(num_ids, id + 1);
  };
  for (const auto& [text, id] : entries) measure(text, id);
  for (const AddedToken& token : added) measure(token.content, token.id);

  tokens_.resize(static_cast<size_t>(num_ids));
  ids_.reserve(static_cast<size_t>(num_entries));
  for (auto& [text, id] : entries) {
    add(std::move(text), id, origin);
    tokens_[static_cast<size_t>(id)].is_model = true;
  }
  for (const AddedToken& token : added) {
    Token& slot = tokens_[static_cast<size_t>(token.id)];
    // An added token may stand in the model's vocabulary too, under the same id.
    if (!slot.is_model || slot.is_added || slot.text != token.content) {
      add(token.content, token.id, origin);
    }
    slot.is_added = true;
    slot.is_special = token.is_special;
  }
}

void Vocabulary::add(std::string text, int64_t id, std::string_view origin) {
  Token& slot = tokens_[static_cast<size_t>(id)];
  if (slot.is_known) {
    fail(concat(origin, ": id ", id, " is given to token ", in_quotes(slot.text), " and to ",
                in_quotes(text)));
  }
  slot.text = std::move(text);
  slot.is_known = true;
  const auto [it, is_new] = ids_.emplace(slot.text, static_cast<int32_t>(id));
  if (!is_new) {
    fail(concat(origin, ": token ", in_quotes(slot.text), " has two ids: ", it->second, " and ",
                id));
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view text) const {
  const auto it = ids_.find(text);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::optional<int32_t> Vocabulary::find_model(std::string_view text) const {
  const std::optional<int32_t> id = find(text);
  if (!id || !at(*id).is_model) return std::nullopt;
  return id;
}

}  // namespace tessera::tokenizer
