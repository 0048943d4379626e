// tokenizer.json as values: read within bounds, each value with its place for messages.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

// One value of the file and its place in it. The document must outlive it. A key whose value is
// null counts as absent.
class FileNode {
 public:
  FileNode(const nlohmann::json& value, std::string place, bool is_root = false);

  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(std::string_view why) const;  // "<place>: <why>"

  std::optional<FileNode> find(std::string_view key) const;
  FileNode at(std::string_view key) const;  // refuses if it is absent
  std::vector<FileNode> items() const;      // of an array

  std::string type() const { return at("type").text(); }
  std::string text() const;
  int64_t integer() const;
  double number() const;
  bool flag(std::string_view key, bool fallback) const;

  // A string of exactly one character, such as "▁".
  std::string character(std::string_view key) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
  bool is_root_;  // its place is the name of the file
};

// The steps of a component: itself, or, if it is a Sequence, the elements under `key`, with nested
// Sequences flattened. At most 64 in all.
std::vector<FileNode> sequence_of(const FileNode& node, std::string_view key);

constexpr size_t kMaxFileBytes = size_t{64} << 20;  // the largest in use have 35 MB

// The two large tables are read straight into vectors; everything else is a JSON value. A table of
// another shape, such as Unigram's array of a vocabulary, is skipped: such files are refused by
// their model's type.
struct TokenizerFile {
  std::shared_ptr<const nlohmann::json> root;  // without model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_vocab = false;
  bool has_merges = false;
};

// Refuses text that is not a JSON object, is nested deeper than 64 levels, or is too large.
TokenizerFile read_tokenizer_file(std::string_view text, std::string_view origin);

}  // namespace tessera::tokenizer
