// Typed access to the values of tokenizer.json.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/file_node.h"

#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMaxSteps = 64;  // parts of one Sequence; files in use have at most five

void append_sequence(const FileNode& node, std::string_view key, std::vector<FileNode>& out) {
  if (node.type() != "Sequence") {
    if (out.size() == kMaxSteps) node.refuse(concat("more than ", kMaxSteps, " steps"));
    out.push_back(node);
    return;
  }
  for (const FileNode& item : node.at(key).items()) append_sequence(item, key, out);
}

}  // namespace

FileNode::FileNode(const nlohmann::json& value, std::string place, bool is_root)
    : value_(&value), place_(std::move(place)), is_root_(is_root) {}

void FileNode::refuse(std::string_view why) const { fail(concat(place_, ": ", why)); }

std::optional<FileNode> FileNode::find(std::string_view key) const {
  if (!value_->is_object()) refuse("is not an object");
  const auto it = value_->find(key);
  if (it == value_->end() || it->is_null()) return std::nullopt;
  return FileNode(*it, concat(place_, is_root_ ? ": " : ".", key));
}

FileNode FileNode::at(std::string_view key) const {
  std::optional<FileNode> node = find(key);
  if (!node) refuse(concat("has no '", key, "'"));
  return *std::move(node);
}

std::vector<FileNode> FileNode::items() const {
  if (!value_->is_array()) refuse("is not an array");
  std::vector<FileNode> nodes;
  nodes.reserve(value_->size());
  for (const nlohmann::json& value : *value_) {
    nodes.emplace_back(value, concat(place_, "[", nodes.size(), "]"));
  }
  return nodes;
}

std::string FileNode::text() const {
  if (!value_->is_string()) refuse("is not a text");
  return value_->get<std::string>();
}

int64_t FileNode::integer() const {
  // An unsigned value above the range of int64_t would wrap to a negative one, which is refused
  // wherever integers are read.
  if (!value_->is_number_integer()) refuse("is not an integer");
  return value_->get<int64_t>();
}

double FileNode::number() const {
  if (!value_->is_number()) refuse("is not a number");
  return value_->get<double>();
}

bool FileNode::flag(std::string_view key, bool fallback) const {
  const std::optional<FileNode> node = find(key);
  if (!node) return fallback;
  if (!node->value_->is_boolean()) node->refuse("is neither true nor false");
  return node->value_->get<bool>();
}

std::string FileNode::character(std::string_view key) const {
  const FileNode node = at(key);
  std::string value = node.text();
  if (value.empty() || unicode::read_character(value).bytes != value.size()) {
    node.refuse(concat("is ", in_quotes(value), "; expected one character"));
  }
  return value;
}

std::vector<FileNode> sequence_of(const FileNode& node, std::string_view key) {
  std::vector<FileNode> out;
  append_sequence(node, key, out);
  return out;
}

}  // namespace tessera::tokenizer
