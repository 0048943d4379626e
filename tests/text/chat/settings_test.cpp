// The chat template and special tokens in a model's folder.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/ops/refusal.h"
#include "tests/text/chat/rendering.h"

namespace tessera::testing {
namespace {

namespace fs = std::filesystem;

// A temporary folder.
class Folder {
 public:
  Folder()
      : path_(fs::path(::testing::TempDir()) /
              (std::string("tessera_chat_") +
               ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  void write(const char* name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(Settings, ReadTokensAndTheTemplate) {
  const ChatSettings settings = parse_chat_settings(
      R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "special": true},
          "chat_template": "{{ 1 }}", "model_max_length": 1000000000000000019884624838656})",
      "t.json");
  EXPECT_EQ(settings.bos_token, "<s>");
  EXPECT_EQ(settings.eos_token, "</s>");
  EXPECT_EQ(settings.template_source, "{{ 1 }}");
}

TEST(Settings, OfABaseModelHaveNoTemplate) {
  const ChatSettings settings = parse_chat_settings(R"({"bos_token": null})", "t.json");
  EXPECT_EQ(settings.bos_token, "");
  EXPECT_EQ(settings.eos_token, "");
  EXPECT_FALSE(settings.template_source);
}

TEST(Settings, TakeTheDefaultOfSeveralTemplates) {
  const char* json = R"({"chat_template": [{"name": "tool_use", "template": "t"},
                                           {"name": "default", "template": "d"}]})";
  EXPECT_EQ(parse_chat_settings(json, "t.json").template_source, "d");
  EXPECT_FALSE(parse_chat_settings(R"({"chat_template": [{"name": "rag", "template": "t"}]})", "t")
                   .template_source);
}

TEST(Settings, RefuseWhatTheyCanNotRead) {
  const auto refuses = [](std::string_view json, std::string_view word) {
    return refused([&] { parse_chat_settings(json, "t.json"); }, {"t.json", word});
  };
  EXPECT_TRUE(refuses("{", "not JSON"));
  EXPECT_TRUE(refuses("[]", "must be a JSON object"));
  EXPECT_TRUE(refuses(R"({"bos_token": 3})", "'bos_token' must be a string"));
  EXPECT_TRUE(refuses(R"({"eos_token": {"content": 3}})", "'eos_token' must be a string"));
  EXPECT_TRUE(refuses(R"({"chat_template": 3})", "'chat_template' must be a string or a list"));
  EXPECT_TRUE(refuses(R"({"chat_template": ["x"]})", "must list objects"));
  EXPECT_TRUE(refuses(R"({"chat_template": [{"name": "default"}]})", "must list objects"));
  const std::string deep(100'000, '[');
  EXPECT_TRUE(refuses("{\"a\": " + deep, "nested deeper than 64 levels"));
}

TEST(Settings, OfAnEmptyFolderAreEmpty) {
  const Folder folder;
  const ChatSettings settings = load_chat_settings(folder.path());
  EXPECT_FALSE(settings.template_source);
  EXPECT_EQ(settings.bos_token, "");
}

TEST(Settings, PreferTheTemplateInItsOwnFile) {
  const Folder folder;
  folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "chat_template": "config"})");
  EXPECT_EQ(load_chat_settings(folder.path()).template_source, "config");
  folder.write("chat_template.jinja", "file\n");
  const ChatSettings settings = load_chat_settings(folder.path());
  EXPECT_EQ(settings.template_source, "file\n");
  EXPECT_EQ(settings.eos_token, "</s>");
}

TEST(Settings, NameTheFileThatIsWrong) {
  const Folder folder;
  folder.write("tokenizer_config.json", "nonsense");
  EXPECT_TRUE(
      refused([&] { load_chat_settings(folder.path()); }, {"tokenizer_config.json", "not JSON"}));
}

TEST(Settings, OfTheBundledModelNameItsTokens) {
  const ChatSettings settings = load_chat_settings(TESSERA_SOURCE_DIR "/models/tessera-13m");
  EXPECT_EQ(settings.bos_token, "<|begin_of_text|>");
  EXPECT_EQ(settings.eos_token, "<|end_of_text|>");
  EXPECT_FALSE(settings.template_source);
}

}  // namespace
}  // namespace tessera::testing
