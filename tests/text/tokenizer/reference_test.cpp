// The same ids and texts as the Hugging Face library, for every kind of tokenizer.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "tests/text/tokenizer/files.h"

namespace tessera::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

TEST(Reference, SamplesOfEachFamilyEncodeAndDecodeAsTheLibraryDoes) {
  for (const json& family : read_data("vectors")) {
    const std::string name = family["tokenizer"];
    const Tokenizer tokenizer = Tokenizer::load(data_file(name));
    for (const json& vector : family["vectors"]) {
      const std::string text = vector["text"];
      SCOPED_TRACE(::testing::Message() << name << ": " << vector["text"]);
      const Ids plain = vector["plain"];
      EXPECT_EQ(tokenizer.encode(text), plain);
      EXPECT_EQ(encode_control(tokenizer, text), vector.value("control", plain));
      EXPECT_EQ(tokenizer.decode(plain, true), vector.value("decoded", text));
    }
  }
}

TEST(Reference, EveryNormalizerAndPreTokenizerWorksAsTheLibrarysDoes) {
  const json file = read_data("variants");
  const json base = read_data(file["base"].get<std::string>());
  for (const json& variant : file["variants"]) {
    json changed = base;
    changed["normalizer"] = variant.value("normalizer", json());
    if (variant.contains("pre_tokenizer")) changed["pre_tokenizer"] = variant["pre_tokenizer"];
    const Tokenizer tokenizer = parse(changed);
    for (size_t idx = 0; idx < file["texts"].size(); ++idx) {
      SCOPED_TRACE(::testing::Message() << variant["name"] << ": " << file["texts"][idx]);
      EXPECT_EQ(tokenizer.encode(file["texts"][idx].get<std::string>()),
                variant["ids"][idx].get<Ids>());
    }
  }
}

TEST(Reference, TheTemplateGivesWhatGoesBeforeAndAfterAText) {
  const Tokenizer llama2 = Tokenizer::load(data_file("llama2"));
  EXPECT_EQ(llama2.prefix(), Ids{1});
  EXPECT_EQ(llama2.suffix(), Ids{});
  const Tokenizer metaspace = Tokenizer::load(data_file("metaspace"));
  EXPECT_EQ(metaspace.prefix(), Ids{1});
  EXPECT_EQ(metaspace.suffix(), Ids{2});
  EXPECT_EQ(Tokenizer::load(data_file("gpt2")).prefix(), Ids{});
}

TEST(Reference, ALaterPostProcessorGoesAroundAnEarlierOne) {
  json file = read_data("llama2");
  const json bert = {{"type", "BertProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<unk>", 0}}};
  const json inner = file["post_processor"];
  file["post_processor"] = {{"type", "Sequence"}, {"processors", {inner, bert}}};
  const Tokenizer tokenizer = parse(file);
  EXPECT_EQ(tokenizer.prefix(), (Ids{0, 1}));
  EXPECT_EQ(tokenizer.suffix(), Ids{2});
}

TEST(Reference, AWordThatIsATokenIsNotTakenApartWhereMergesAreIgnored) {
  json file = byte_level_file();
  const int32_t id = static_cast<int32_t>(file["model"]["vocab"].size());
  file["model"]["vocab"]["qqq"] = id;  // no merge produces it
  EXPECT_EQ(parse(file).encode("qqq").size(), 3u);
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(parse(file).encode("qqq"), Ids{id});
}

TEST(Reference, TokensAreFoundByTextAndByIdAndHolesAreEmpty) {
  json file = byte_level_file();
  file["added_tokens"].push_back(
      {{"id", 500}, {"content", "<far>"}, {"special", false}, {"normalized", false}});
  const Tokenizer tokenizer = parse(file);
  EXPECT_EQ(tokenizer.num_ids(), 501);
  EXPECT_EQ(tokenizer.find("<far>"), 500);
  EXPECT_EQ(tokenizer.find("<nowhere>"), std::nullopt);
  EXPECT_EQ(tokenizer.token_text(500), "<far>");
  for (const int32_t hole : {-1, 499, 501, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_text(hole), "") << hole;
    EXPECT_EQ(tokenizer.decode(std::vector{hole}), "") << hole;
    EXPECT_FALSE(tokenizer.is_special(hole)) << hole;
  }
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(500));
}

TEST(Reference, WithoutADecoderTokensHaveSpacesBetween) {
  json file = byte_level_file();
  file["decoder"] = nullptr;
  const Tokenizer tokenizer = parse(file);
  const Ids ids{*tokenizer.find("a"), *tokenizer.find("b"), *tokenizer.find("c")};
  EXPECT_EQ(tokenizer.decode(ids), "a b c");
}

}  // namespace
}  // namespace tessera::testing
