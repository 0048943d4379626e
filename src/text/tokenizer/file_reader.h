// The text of a tokenizer.json as values, read within bounds.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::tokenizer {

constexpr size_t kMaxFileBytes = size_t{64} << 20;  // the largest in use have 35 MB

// The two large tables are read straight into vectors; everything else is a JSON value. A table
// of another shape (the array that Unigram has for a vocabulary) is left out: the model's type is
// what to refuse it by.
struct TokenizerFile {
  nlohmann::json root;  // without model.vocab and model.merges
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;
  bool has_vocab = false;
  bool has_merges = false;
};

// Refuses what is no JSON object, is nested deeper than 64, or is too large.
TokenizerFile read_tokenizer_file(std::string_view text, std::string_view origin);

}  // namespace tessera::tokenizer
