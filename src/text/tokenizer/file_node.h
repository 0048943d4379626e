// A value of tokenizer.json together with its place, so that every refusal says where.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::tokenizer {

// A view: the document outlives it. A key whose value is null counts as absent.
class FileNode {
 public:
  FileNode(const nlohmann::json& value, std::string place, bool is_root = false);

  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(std::string_view why) const;  // "<place>: <why>"

  std::optional<FileNode> find(std::string_view key) const;
  FileNode at(std::string_view key) const;  // refuses where it is absent
  std::vector<FileNode> items() const;      // of an array

  std::string type() const { return at("type").text(); }
  std::string text() const;
  int64_t integer() const;
  double number() const;
  bool flag(std::string_view key, bool fallback) const;

  // The one character of a text: "▁".
  std::string character(std::string_view key) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
  bool is_root_;  // its place is the file's name
};

// The parts of a component that may be a Sequence of others under `key`: itself, or its elements,
// Sequences within them included. At most 64 in all.
std::vector<FileNode> sequence_of(const FileNode& node, std::string_view key);

}  // namespace tessera::tokenizer
