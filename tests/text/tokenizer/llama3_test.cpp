// Llama 3's tokenizer on published reference lines.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <stdio.h>

#include <array>
#include <memory>
#include <optional>
#include <sstream>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const std::filesystem::path kFolder = kShared / "data/tokenizers/llama3";

// Empty if the file or xz is missing.
std::string unpacked_file() {
  const auto packed = kFolder / "tokenizer.json.xz";
  if (!std::filesystem::exists(packed)) return {};
  const std::string command = "xz -dc '" + packed.string() + "' 2>/dev/null";
  const auto close = [](FILE* pipe) { pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  std::string text;
  if (pipe == nullptr) return text;
  std::array<char, 65536> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe.get())) {
    text.append(buffer.data(), count);
  }
  return text;
}

class Llama3 : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string text = unpacked_file();
    if (!text.empty()) tokenizer_.emplace(Tokenizer::parse(text, "tokenizer.json"));
  }
  static void TearDownTestSuite() { tokenizer_.reset(); }
  void SetUp() override {
    if (!tokenizer_) GTEST_SKIP() << kFolder << " or xz is not here";
  }
  static const Tokenizer& tokenizer() { return *tokenizer_; }

 private:
  static std::optional<Tokenizer> tokenizer_;
};
std::optional<Tokenizer> Llama3::tokenizer_;

TEST_F(Llama3, TextsEncodeAsTheLibraryEncodesThem) {
  const json vectors = json::parse(read_text(kFolder / "hf_vectors.json"));
  EXPECT_GT(vectors.size(), 40u);
  for (const json& vector : vectors) {
    const std::string text = vector["text"];
    EXPECT_EQ(tokenizer().encode(text), vector["ids"].get<Ids>()) << vector["text"];
    EXPECT_EQ(tokenizer().decode(tokenizer().encode(text)), text);
  }
}

TEST_F(Llama3, PublishedLinesHaveThePublishedIds) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  const std::string texts = read_text(kFolder / "llama-bpe.inp");
  std::istringstream lines(read_text(kFolder / "llama-bpe.out"));
  size_t num_texts = 0;
  for (size_t pos = 0; pos < texts.size();) {
    const size_t end = std::min(texts.find(kSeparator, pos), texts.size());
    const std::string text = texts.substr(pos, end - pos);
    pos = end + kSeparator.size();
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << "text " << num_texts;
    std::istringstream numbers(line);
    const Ids ids{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_EQ(tokenizer().encode(text), ids) << "text " << num_texts << ": " << text;
    ++num_texts;
  }
  EXPECT_GT(num_texts, 40u);
}

TEST_F(Llama3, TextsComeBackWholeAndLineByLine) {
  for (const char* name : {"enwiki_val.txt", "wiki.test.raw"}) {
    const std::string text = read_text(kShared / "data/text" / name);
    ASSERT_FALSE(text.empty()) << name;
    EXPECT_TRUE(tokenizer().decode(tokenizer().encode(text), true) == text) << name;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      ASSERT_EQ(tokenizer().decode(tokenizer().encode(line), true), line) << name;
    }
  }
}

TEST_F(Llama3, OnlyControlTextBecomesAControlToken) {
  const std::string text = "<|begin_of_text|>Hello<|eot_id|>";
  EXPECT_EQ(encode_control(tokenizer(), text), (Ids{128000, 9906, 128009}));
  const Ids plain = tokenizer().encode(text);
  for (const int32_t id : plain) EXPECT_LT(id, 128000);
  EXPECT_EQ(tokenizer().decode(plain), text);
}

}  // namespace
}  // namespace tessera::testing
