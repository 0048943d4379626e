// Making a Tokenizer of a file, and what it says of its tokens.
// SPDX-License-Identifier: MIT
#include "tessera/text/tokenizer.h"

#include <optional>
#include <utility>

#include "core/read_file.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace tessera {
namespace {

using namespace tokenizer;

// The model's part of the file. Old files of BPE models do not name their type.
FileNode bpe_node(const FileNode& root, const TokenizerFile& file) {
  FileNode model = root.at("model");
  const std::optional<FileNode> type = model.find("type");
  if (type ? type->text() != "BPE" : !file.has_merges) {
    model.refuse(concat("a model ", type ? in_quotes(type->text()) : "without a type",
                        " is not supported; supported: BPE"));
  }
  if (!file.has_vocab) model.refuse("has no 'vocab' that is an object");
  if (!file.has_merges) model.refuse("has no 'merges' that is an array");
  return model;
}

template <class Part>
Part read_part(const FileNode& root, std::string_view key) {
  const std::optional<FileNode> node = root.find(key);
  return node ? Part(*node) : Part();
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerFile& file, const FileNode& root, const FileNode& model,
                      std::string_view origin)
    : added(read_added_tokens(root)),
      vocabulary(std::move(file.vocab), added, origin),
      normalizer(read_part<Normalizer>(root, "normalizer")),
      written_tokens(added_tokens_written()),
      normalized_tokens(added_tokens_normalized()),
      pre_tokenizer(read_part<PreTokenizer>(root, "pre_tokenizer")),
      bpe(model, file.merges, vocabulary),
      decoder(read_part<Decoder>(root, "decoder")) {
  if (const auto node = root.find("post_processor")) {
    affixes = read_post_processor(*node, vocabulary);
  }
  size_t num_bytes = 0;
  for (int32_t id = 0; id < vocabulary.num_ids(); ++id) num_bytes += vocabulary.text(id).size();
  MatchBudget budget(num_bytes);
  bytes.reserve(static_cast<size_t>(vocabulary.num_ids()));
  for (int32_t id = 0; id < vocabulary.num_ids(); ++id) {
    bytes.push_back(decoder.bytes_of(vocabulary.text(id), false, vocabulary.is_added(id), budget));
  }
}

// Special tokens are looked for as written even where the file says "normalized": what a
// normalizer makes of the text around them must not hide them.
bool Tokenizer::Impl::is_written(const AddedToken& token) const {
  return !token.is_normalized || token.is_special || normalizer.is_identity();
}

std::vector<AddedToken> Tokenizer::Impl::added_tokens_written() const {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : added) {
    if (is_written(token)) tokens.push_back(token);
  }
  return tokens;
}

std::vector<AddedToken> Tokenizer::Impl::added_tokens_normalized() const {
  std::vector<AddedToken> tokens;
  MatchBudget budget(0);
  for (const AddedToken& token : added) {
    if (is_written(token)) continue;
    tokens.push_back(token);
    tokens.back().content = normalizer.apply(token.content, false, budget);
  }
  return tokens;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(std::string_view json, std::string_view origin) {
  TokenizerFile file = read_tokenizer_file(json, origin);
  const FileNode root(file.root, std::string(origin), true);
  const FileNode model = bpe_node(root, file);
  return Tokenizer(std::make_unique<Impl>(file, root, model, origin));
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return parse(read_file(file, static_cast<int64_t>(kMaxFileBytes)), shown_path(file.native()));
}

const std::vector<int32_t>& Tokenizer::prefix() const { return impl_->affixes.prefix; }
const std::vector<int32_t>& Tokenizer::suffix() const { return impl_->affixes.suffix; }
int32_t Tokenizer::num_ids() const { return impl_->vocabulary.num_ids(); }
bool Tokenizer::is_special(int32_t id) const { return impl_->vocabulary.is_special(id); }

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  return impl_->vocabulary.find(token);
}

std::string_view Tokenizer::token_text(int32_t id) const { return impl_->vocabulary.text(id); }

}  // namespace tessera
