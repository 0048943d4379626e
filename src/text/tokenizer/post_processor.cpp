// Templates of one text; the pair templates are not used.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/post_processor.h"

#include "core/text.h"

namespace tessera::tokenizer {
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
    } else if (type != "ByteLevel") {  // which trims offsets, and no text
      processor.refuse(concat("post-processor ", in_quotes(type),
                              " is not supported; supported: Sequence, TemplateProcessing, "
                              "ByteLevel, BertProcessing, RobertaProcessing"));
    }
    // A later one goes around what the earlier ones made.
    all.prefix.insert(all.prefix.begin(), affixes.prefix.begin(), affixes.prefix.end());
    all.suffix.insert(all.suffix.end(), affixes.suffix.begin(), affixes.suffix.end());
  }
  return all;
}

}  // namespace tessera::tokenizer
