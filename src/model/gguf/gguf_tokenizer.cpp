// The tokenizer of a GGUF file as a tokenizer.json, which src/text reads.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/text.h"
#include "model/gguf/gguf_model.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

constexpr std::string_view kSpace = "\u2581";  // SentencePiece's space
constexpr size_t kMaxPiece = 512;              // bytes of a piece that may be merged

// What the file calls a way to cut text into words, and how: the expression, or none for GPT-2's.
struct Words {
  std::string_view name;
  const char* expression;
  bool has_nfc;
  bool adds_bos;  // where the file does not say
};
constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr Words kWords[] = {
    {"llama-bpe", kLlama3Words, false, true},
    {"llama3", kLlama3Words, false, true},
    {"qwen2", kQwen2Words, true, false},
    {"gpt-2", nullptr, false, false},
};

// Kinds of tokens in tokenizer.ggml.token_type.
constexpr int64_t kUnknown = 2, kControl = 3, kUserDefined = 4;

class TokenizerWriter {
 public:
  explicit TokenizerWriter(const GgufFile& gguf) : gguf_(gguf) {
    const auto* tokens = gguf.texts("tokenizer.ggml.tokens");
    if (tokens == nullptr) gguf.refuse("tokenizer.ggml.tokens", "is missing");
    tokens_ = tokens;
    types_ = gguf.wholes("tokenizer.ggml.token_type");
    if (types_ != nullptr && types_->size() != tokens_->size()) {
      gguf.refuse("tokenizer.ggml.token_type",
                  concat("has ", types_->size(), " elements for ", tokens_->size(), " tokens"));
    }
  }

  std::string run() {
    const auto kind = gguf_.text("tokenizer.ggml.model");
    if (!kind) gguf_.refuse("tokenizer.ggml.model", "is missing");
    json document = {{"version", "1.0"}, {"added_tokens", added_tokens()}};
    std::string merges;
    json model = {{"type", "BPE"}};
    bool adds_bos = true;
    if (*kind == "gpt2") {
      adds_bos = write_byte_level(document);
      model["ignore_merges"] = adds_bos;  // as Llama 3 has it
      merges = stored_merges();
    } else if (*kind == "llama") {
      write_sentence_piece(document, model);
      merges = merges_of_scores();
    } else {
      gguf_.refuse("tokenizer.ggml.model",
                   concat("is '", shown(*kind), "'; supported are gpt2 and llama"));
    }
    write_prefix(document, gguf_.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos));
    // Vocabulary and merges are large: they are joined as text.
    std::string text = document.dump(), tail = model.dump();
    text.back() = ',';
    tail.back() = ',';
    return concat(text, "\"model\":", tail, "\"vocab\":", vocabulary(), ",\"merges\":", merges,
                  "}}");
  }

 private:
  int64_t type_of(size_t id) const { return types_ == nullptr ? 1 : (*types_)[id]; }

  json added_tokens() const {
    json added = json::array();
    for (size_t id = 0; id < tokens_->size(); ++id) {
      const int64_t type = type_of(id);
      if (type != kControl && type != kUserDefined && type != kUnknown) continue;
      added.push_back({{"id", id},
                       {"content", (*tokens_)[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type != kUserDefined}});
    }
    return added;
  }

  std::string vocabulary() const {
    std::string text = "{";
    for (size_t id = 0; id < tokens_->size(); ++id) {
      text += id == 0 ? "" : ",";
      text += json((*tokens_)[id]).dump();
      text += ':';
      text += std::to_string(id);
    }
    return text + "}";
  }

  // Whether such a tokenizer begins texts with a token where the file does not say.
  bool write_byte_level(json& document) const {
    const std::string name = gguf_.text("tokenizer.ggml.pre").value_or("gpt-2");
    const auto words = std::ranges::find(kWords, name, &Words::name);
    if (words == std::end(kWords)) {
      std::string all;
      for (const Words& one : kWords) all += concat(all.empty() ? "" : ", ", one.name);
      gguf_.refuse("tokenizer.ggml.pre", concat("is '", shown(name), "'; supported are ", all));
    }
    const json bytes = {{"type", "ByteLevel"},
                        {"add_prefix_space", false},
                        {"trim_offsets", true},
                        {"use_regex", words->expression == nullptr}};
    document["decoder"] = bytes;
    document["pre_tokenizer"] = bytes;
    if (words->has_nfc) document["normalizer"] = {{"type", "NFC"}};
    if (words->expression != nullptr) {
      const json split = {{"type", "Split"},
                          {"pattern", {{"Regex", words->expression}}},
                          {"behavior", "Isolated"},
                          {"invert", false}};
      document["pre_tokenizer"] = {{"type", "Sequence"},
                                   {"pretokenizers", json::array({split, bytes})}};
    }
    return words->adds_bos;
  }

  void write_sentence_piece(json& document, json& model) const {
    const json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpace}};
    json normalizers = json::array();
    const bool has_prefix = gguf_.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    if (has_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    normalizers.push_back(space);
    document["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    json decoders =
        json::array({{{"type", "Replace"}, {"pattern", {{"String", kSpace}}}, {"content", " "}},
                     {{"type", "ByteFallback"}},
                     {{"type", "Fuse"}}});
    if (has_prefix) {
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    document["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    model["byte_fallback"] = true;
    model["fuse_unk"] = true;
    for (size_t id = 0; id < tokens_->size(); ++id) {
      if (type_of(id) == kUnknown) model["unk_token"] = (*tokens_)[id];
    }
  }

  std::string stored_merges() const {
    const auto* merges = gguf_.texts("tokenizer.ggml.merges");
    if (merges == nullptr) gguf_.refuse("tokenizer.ggml.merges", "is missing");
    std::string text = "[";
    for (const std::string& merge : *merges) {
      text += text.size() == 1 ? "" : ",";
      text += json(merge).dump();
    }
    return text + "]";
  }

  // SentencePiece joins the pair whose result has the highest score: a list of all pairs, sorted by
  // that score, says the same.
  std::string merges_of_scores() const {
    const auto* scores = gguf_.numbers("tokenizer.ggml.scores");
    if (scores == nullptr || scores->size() != tokens_->size()) {
      gguf_.refuse("tokenizer.ggml.scores",
                   concat("must have a score for each of the ", tokens_->size(), " tokens"));
    }
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens_->size(); ++id) ids.emplace((*tokens_)[id], id);
    struct Merge {
      double score;
      std::string_view left, right;
    };
    std::vector<Merge> merges;
    for (size_t id = 0; id < tokens_->size(); ++id) {
      const std::string_view piece = (*tokens_)[id];
      if (type_of(id) != 1 || piece.size() > kMaxPiece) continue;
      for (size_t cut = 1; cut < piece.size(); ++cut) {
        const std::string_view left = piece.substr(0, cut), right = piece.substr(cut);
        if (ids.contains(left) && ids.contains(right)) {
          merges.push_back({(*scores)[id], left, right});
        }
      }
    }
    std::ranges::stable_sort(merges, std::ranges::greater{}, &Merge::score);
    std::string text = "[";
    for (const Merge& merge : merges) {
      text += concat(text.size() == 1 ? "" : ",", "[", json(merge.left).dump(), ",",
                     json(merge.right).dump(), "]");
    }
    return text + "]";
  }

  void write_prefix(json& document, bool adds_bos) const {
    if (!adds_bos) return;
    const auto id = gguf_.whole("tokenizer.ggml.bos_token_id");
    if (!id || *id < 0 || *id >= std::ssize(*tokens_)) {
      gguf_.refuse("tokenizer.ggml.bos_token_id",
                   concat("is ", id ? std::to_string(*id) : "missing", "; there are ",
                          tokens_->size(), " tokens, and texts begin with it"));
    }
    const std::string& token = (*tokens_)[static_cast<size_t>(*id)];
    const json begin = {{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
    const json first = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json second = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
    document["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", json::array({begin, first})},
        {"pair", json::array({begin, first, second})},
        {"special_tokens", {{token, {{"id", token}, {"ids", {*id}}, {"tokens", {token}}}}}}};
  }

  const GgufFile& gguf_;
  const std::vector<std::string>* tokens_;
  const std::vector<int64_t>* types_;
};

}  // namespace

std::string gguf_tokenizer_json(const GgufFile& gguf) {
  try {
    return TokenizerWriter(gguf).run();
  } catch (const json::exception&) {
    gguf.refuse("tokenizer.ggml.tokens", "holds text that is not UTF-8");
  }
}

}  // namespace tessera::model
