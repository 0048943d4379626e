// What a Tokenizer holds: the parts of the file, in the order text goes through them.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/file_reader.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

namespace tessera {

// Immutable once made: threads may share it.
struct Tokenizer::Impl {
  // Takes the tables out of the file. `root` and `model` are nodes of its tree.
  Impl(tokenizer::TokenizerFile& file, const tokenizer::FileNode& root,
       const tokenizer::FileNode& model, std::string_view origin);

  std::vector<tokenizer::AddedToken> added;  // as the file lists them
  tokenizer::Vocabulary vocabulary;
  tokenizer::Normalizer normalizer;
  tokenizer::TokenFinder written_tokens;     // looked for in the text as it is written
  tokenizer::TokenFinder normalized_tokens;  // looked for in normalised text
  tokenizer::PreTokenizer pre_tokenizer;
  tokenizer::Bpe bpe;
  tokenizer::Decoder decoder;
  tokenizer::Affixes affixes;
  std::vector<std::string> bytes;  // what an id adds to a text, anywhere but first

 private:
  bool is_written(const tokenizer::AddedToken& token) const;
  std::vector<tokenizer::AddedToken> added_tokens_written() const;
  std::vector<tokenizer::AddedToken> added_tokens_normalized() const;
};

}  // namespace tessera
