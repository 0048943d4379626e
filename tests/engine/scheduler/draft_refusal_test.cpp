// Drafts that do not belong to their target are refused by name, before any weight is read.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/draft_setup.h"
#include "engine/make_engine.h"
#include "engine/validate.h"
#include "tests/core/message_of.h"
#include "tests/engine/scheduler/tiny_model.h"
#include "tests/model/temporary_folder.h"

namespace tessera {
namespace {

using namespace tessera::testing;

nlohmann::ordered_json read_json(const std::string& name) {
  std::ifstream file(bundled_model() / name);
  return nlohmann::ordered_json::parse(file);
}

// The bundled model's config and tokenizer, and no weights: reading one would be another error.
class DraftFolder : public TemporaryFolder {
 public:
  DraftFolder() : config(read_json("config.json")), tokenizer(read_json("tokenizer.json")) {}

  EngineOptions options() const {
    write("config.json", config.dump());
    write("tokenizer.json", tokenizer.dump());
    EngineOptions options;
    options.max_context = 256;
    options.speculation = Speculation::draft;
    options.draft_folder = path();
    return options;
  }
  std::string refusal() const {
    const EngineOptions made = options();
    return message_of([&] { Engine::load(bundled_model(), made); });
  }

  nlohmann::ordered_json config;
  nlohmann::ordered_json tokenizer;
};

TEST(DraftRefusal, OfAnotherVocabulary) {
  DraftFolder folder;
  folder.config["vocab_size"] = 8200;
  EXPECT_EQ(folder.refusal(),
            "engine: draft_folder: the draft model has vocab_size 8200 and the model 8192; give a "
            "draft of the same family");
}

TEST(DraftRefusal, OfATokenWithAnotherText) {
  DraftFolder folder;
  auto& vocab = folder.tokenizer["model"]["vocab"];
  std::string first, second;
  for (const auto& [token, id] : vocab.items()) {
    if (id == 70) first = token;
    if (id == 71) second = token;
  }
  std::swap(vocab[first], vocab[second]);
  const std::string message = folder.refusal();
  EXPECT_TRUE(message.starts_with("engine: draft_folder: token 70 is '" + second + "' in "))
      << message;
  EXPECT_NE(message.find(" and '" + first + "' in "), std::string::npos) << message;
  EXPECT_NE(message.find("give a draft of the same family"), std::string::npos) << message;
}

TEST(DraftRefusal, OfAFolderThatIsNoModel) {
  EngineOptions options = DraftFolder().options();
  options.draft_folder = "/nonexistent";
  EXPECT_NE(message_of([&] { Engine::load(bundled_model(), options); }).find("/nonexistent"),
            std::string::npos);
  options.draft_folder.clear();
  EXPECT_EQ(message_of([&] { Engine::load(bundled_model(), options); }),
            "engine: speculation draft needs draft_folder: give the folder of a small model");
}

TEST(DraftRefusal, OfACacheThatCannotGoBack) {
  EngineOptions options = DraftFolder().options();
  options.kv_type = KvFormat::int4;
  options.page_size = 32;
  EXPECT_EQ(message_of([&] { engine::check_options(options); }),
            "engine: speculation draft is not for kv_type int4; leave one of them out");
}

TEST(DraftRefusal, OfADraftWithoutSpeculationAndViceVersa) {
  EngineOptions options = tiny_options();
  EXPECT_NE(message_of([&] {
              engine_over(tiny_model(tiny_config()), options, {}, tiny_model(tiny_config()));
            }).find("give both or neither"),
            std::string::npos);
  options.speculation = Speculation::draft;
  EXPECT_NE(message_of([&] { tiny_engine(options); }).find("give both or neither"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              engine_over(tiny_model(tiny_config()), options, {}, tiny_model(tiny_config(80)));
            }).find("vocab_size 80 and the model 96"),
            std::string::npos);
}

TEST(DraftMemory, HoldsAsManyTokensAsTheTargets) {
  model::ModelConfig small = tiny_config();
  small.num_layers = 1;
  EngineOptions options = engine::fill_options(tiny_options(/*num_pages=*/40), tiny_config());
  options.speculation = Speculation::draft;
  EXPECT_EQ(engine::draft_options(options, tiny_config(), small, 0).kv_bytes, options.kv_bytes / 2);
  // Not given: room for the contexts of both if there is enough, for one at least.
  options.kv_bytes = 0;
  options.max_batch = 64;
  const int64_t context_bytes = kTinyContext * small.kv_bytes_per_token(DType::f32);
  EXPECT_EQ(engine::draft_options(options, tiny_config(), small, int64_t{1} << 40).kv_bytes,
            4 * context_bytes);
  EXPECT_EQ(engine::draft_options(options, tiny_config(), small, 0).kv_bytes, context_bytes);
}

}  // namespace
}  // namespace tessera
