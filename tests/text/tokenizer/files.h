// Files for the tokenizer's tests, and tokenizers made from them.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer.h"

namespace tessera::testing {

inline const std::filesystem::path kRepository = TESSERA_SOURCE_DIR;
inline const std::filesystem::path kShared = kRepository.parent_path() / "shared";  // may be absent

inline std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline std::filesystem::path data_file(std::string_view name) {
  return kRepository / "tests/text/tokenizer/data" / (std::string(name) + ".json");
}

inline nlohmann::json read_data(std::string_view name) {
  return nlohmann::json::parse(read_text(data_file(name)));
}

inline Tokenizer parse(const nlohmann::json& file) {
  return Tokenizer::parse(file.dump(), "tokenizer.json");
}

inline const Tokenizer& bundled() {
  static const Tokenizer tokenizer =
      Tokenizer::load(kRepository / "models/tessera-13m/tokenizer.json");
  return tokenizer;
}

inline std::vector<int32_t> encode_control(const Tokenizer& tokenizer, std::string_view text) {
  const TextPart part{std::string(text), true};
  return tokenizer.encode(std::span(&part, 1));
}

// A byte-level tokenizer whose only tokens are the bytes, with the ids of the GPT-2 sample; tests
// add to it.
inline nlohmann::json byte_level_file() { return read_data("gpt2"); }

}  // namespace tessera::testing
