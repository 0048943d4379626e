// Reads tokenizer.json: vocabulary and merges into vectors, the rest into a bounded JSON value.
//
// The two tables are nearly all of the file (410,000 entries in Llama 3). As JSON values they would
// take ten times the memory and most of the loading time.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/tokenizer_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxNodes = 1'000'000;  // values outside the two tables

class Reader : public nlohmann::json_sax<json> {
 public:
  explicit Reader(std::string_view origin) : origin_(origin) {}

  TokenizerFile take() {
    file_.root = std::make_shared<const json>(std::move(root_));
    return std::move(file_);
  }

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return integer(value, value); }
  bool number_unsigned(number_unsigned_t value) override {
    return integer(value > INT64_MAX ? int64_t{-1} : static_cast<int64_t>(value), value);
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (where_ == Where::vocab) refuse_id(text);
    return scalar(value);
  }
  bool binary(binary_t&) override { return true; }  // JSON text has none

  bool string(string_t& value) override {
    if (where_ == Where::vocab) refuse_id(in_quotes(value));
    if (where_ == Where::merges && depth_ == merges_depth_) add_merge(value);
    if (where_ == Where::merge) pair_.push_back(std::move(value));
    if (where_ != Where::tree) return true;
    return scalar(std::move(value));
  }

  bool start_object(size_t) override {
    enter();
    if (where_ == Where::tree && is_at_model("vocab")) {
      where_ = Where::vocab;
      file_.has_vocab = true;
    } else if (where_ == Where::tree) {
      open(json::object());
    } else if (where_ != Where::skipped) {
      refuse_shape();
    }
    return true;
  }
  bool key(string_t& value) override {
    if (where_ == Where::skipped) return true;
    key_ = std::move(value);
    return true;
  }
  bool end_object() override {
    if (where_ == Where::vocab)
      where_ = Where::tree;
    else if (where_ == Where::tree)
      open_.pop_back();
    --depth_;
    return true;
  }

  bool start_array(size_t) override {
    enter();
    if (where_ == Where::tree && is_at_model("merges")) {
      where_ = Where::merges;
      merges_depth_ = depth_;
      file_.has_merges = true;
    } else if (where_ == Where::tree && is_at_model("vocab")) {
      where_ = Where::skipped;
      skipped_depth_ = depth_;
    } else if (where_ == Where::tree) {
      open(json::array());
    } else if (where_ == Where::merges) {
      where_ = Where::merge;
      pair_.clear();
    } else if (where_ != Where::skipped) {
      refuse_shape();
    }
    return true;
  }
  bool end_array() override {
    if (where_ == Where::merge) {
      if (pair_.size() != 2) {
        fail(concat(origin_, ": merge ", file_.merges.size(), " has ", pair_.size(),
                    " parts; expected 2"));
      }
      file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
      where_ = Where::merges;
    } else if (where_ == Where::merges || (where_ == Where::skipped && depth_ == skipped_depth_)) {
      where_ = Where::tree;
    } else if (where_ == Where::tree) {
      open_.pop_back();
    }
    --depth_;
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    // Without the library's own error code in front, and without what it read last, which may be
    // long.
    std::string_view what = error.what();
    what.remove_prefix(std::min(what.find("] ") + 2, what.size()));
    fail(concat(origin_, " is not JSON: ", what.substr(0, what.find("; last read"))));
  }

 private:
  enum class Where { tree, vocab, merges, merge, skipped };

  void enter() {
    if (++depth_ > kMaxDepth) fail(concat(origin_, ": nested deeper than ", kMaxDepth));
  }

  // Whether the next value is root.model[key].
  bool is_at_model(std::string_view key) const {
    return open_.size() == 2 && is_in_model_ && key_ == key;
  }

  json& place(json value) {
    if (++num_nodes_ > kMaxNodes) {
      fail(concat(origin_, ": more than ", kMaxNodes, " values beside vocabulary and merges"));
    }
    if (open_.empty()) return root_ = std::move(value);
    json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }

  // A reference into an array stays valid: nothing is appended to it until this child is closed.
  void open(json value) {
    if (open_.size() == 1) is_in_model_ = key_ == "model" && open_[0]->is_object();
    open_.push_back(&place(std::move(value)));
  }

  bool scalar(json value) {
    if (where_ == Where::merges || where_ == Where::merge) refuse_shape();
    if (where_ == Where::vocab) refuse_id(value.dump());
    if (where_ == Where::tree) place(std::move(value));
    return true;
  }

  template <class Number>
  bool integer(int64_t value, Number original) {
    if (where_ != Where::vocab) return scalar(original);
    file_.vocab.emplace_back(std::move(key_), value);
    key_.clear();
    return true;
  }

  void add_merge(const std::string& line) {
    if (line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      fail(concat(origin_, ": merge ", file_.merges.size(), " is ", in_quotes(line),
                  "; expected two tokens with one space between"));
    }
    file_.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }

  [[noreturn]] void refuse_id(std::string_view value) const {
    fail(concat(origin_, ": the id of token ", in_quotes(key_), " is ", value,
                "; expected an integer"));
  }
  [[noreturn]] void refuse_shape() const {
    if (where_ == Where::vocab) refuse_id("an array or object");
    fail(
        concat(origin_, ": merge ", file_.merges.size(), " is neither \"a b\" nor [\"a\", \"b\"]"));
  }

  std::string origin_;
  TokenizerFile file_;
  json root_;
  std::vector<json*> open_;  // from the root to the value being filled
  std::string key_;
  std::vector<std::string> pair_;
  Where where_ = Where::tree;
  bool is_in_model_ = false;
  size_t depth_ = 0;
  size_t merges_depth_ = 0;
  size_t skipped_depth_ = 0;
  size_t num_nodes_ = 0;
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view text, std::string_view origin) {
  if (text.size() > kMaxFileBytes) {
    fail(concat(origin, " has ", text.size(), " bytes; at most ", kMaxFileBytes, " are read"));
  }
  check_no_nul(text, origin);
  Reader reader(origin);
  json::sax_parse(text.begin(), text.end(), &reader);
  TokenizerFile file = reader.take();
  if (!file.root->is_object()) fail(concat(origin, " is not a JSON object"));
  return file;
}

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
