// Builds the vocabulary, and reads the post-processor.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/tokenizer_file.h"

namespace tessera::tokenizer {
namespace {

constexpr int64_t kMaxHoles = 65'536;  // ids without a token: one huge id must not take much memory

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
    // An added token may also be in the model's vocabulary, under the same id.
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

namespace {

int32_t checked_id(const FileNode& node, int64_t id, const Vocabulary& vocabulary) {
  if (!vocabulary.has(id)) node.refuse(concat("is ", id, ", which is the id of no token"));
  return static_cast<int32_t>(id);
}

void append_special(const FileNode& node, const FileNode& processor, const Vocabulary& vocabulary,
                    std::vector<int32_t>& out) {
  const std::string name = node.at("id").text();
  const FileNode ids = processor.at("special_tokens").at(name).at("ids");
  for (const FileNode& id : ids.items()) {
    out.push_back(checked_id(id, id.integer(), vocabulary));
  }
}

Affixes read_template(const FileNode& processor, const Vocabulary& vocabulary) {
  Affixes affixes;
  bool has_text = false;
  const FileNode single = processor.at("single");
  for (const FileNode& item : single.items()) {
    if (const auto special = item.find("SpecialToken")) {
      append_special(*special, processor, vocabulary, has_text ? affixes.suffix : affixes.prefix);
      continue;
    }
    const FileNode text = item.at("Sequence");
    if (has_text || text.at("id").text() != "A") {
      text.refuse("is not the one text 'A' of a single template");
    }
    has_text = true;
  }
  if (!has_text) single.refuse("has no text 'A'");
  return affixes;
}

// BertProcessing and RobertaProcessing: "cls": ["<s>", 0], "sep": ["</s>", 2].
int32_t named_id(const FileNode& pair, const Vocabulary& vocabulary) {
  const std::vector<FileNode> items = pair.items();
  if (items.size() != 2) pair.refuse("is not a token and its id");
  return checked_id(items[1], items[1].integer(), vocabulary);
}

}  // namespace

Affixes read_post_processor(const FileNode& node, const Vocabulary& vocabulary) {
  Affixes all;
  for (const FileNode& processor : sequence_of(node, "processors")) {
    const std::string type = processor.type();
    Affixes affixes;
    if (type == "TemplateProcessing") {
      affixes = read_template(processor, vocabulary);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      affixes.prefix = {named_id(processor.at("cls"), vocabulary)};
      affixes.suffix = {named_id(processor.at("sep"), vocabulary)};
    } else if (type != "ByteLevel") {  // ByteLevel only trims offsets, which are not used
      processor.refuse(concat("post-processor ", in_quotes(type),
                              " is not supported; supported: Sequence, TemplateProcessing, "
                              "ByteLevel, BertProcessing, RobertaProcessing"));
    }
    // Later processors wrap the result of earlier ones.
    all.prefix.insert(all.prefix.begin(), affixes.prefix.begin(), affixes.prefix.end());
    all.suffix.insert(all.suffix.end(), affixes.suffix.begin(), affixes.suffix.end());
  }
  return all;
}

}  // namespace tessera::tokenizer
