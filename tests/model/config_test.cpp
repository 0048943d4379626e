// config.json in the forms that are found in the wild.
// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

using model::ModelConfig;
using model::parse_config;

TEST(Config, ReadsLlama2InTheOldForm) {
  const ModelConfig config = parse_config(R"({
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "tie_word_embeddings": false, "torch_dtype": "float16", "use_cache": true,
    "vocab_size": 32000})",
                                          "config.json");
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.num_layers, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_kv_heads, 32);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::none);
  EXPECT_EQ(config.dtype, DType::f16);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, std::vector<int32_t>{2});
  EXPECT_EQ(config.num_parameters(), 6'738'415'616);
  EXPECT_EQ(config.kv_bytes_per_token(DType::f16), 524'288);
}

TEST(Config, ReadsLlama31WithSeveralStopTokens) {
  const ModelConfig config = parse_config(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "vocab_size": 128256})",
                                          "config.json");
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::llama3);
  EXPECT_EQ(config.rope_scaling.factor, 8.0);
  EXPECT_EQ(config.rope_scaling.original_max_positions, 8192);
  EXPECT_EQ(config.eos_tokens, (std::vector<int32_t>{128001, 128008, 128009}));
  EXPECT_EQ(config.num_parameters(), 8'030'261'248);
}

// The smallest valid file, plus what a test adds.
std::string llama_with(const std::string& more) {
  return R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
             "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 4,
             "vocab_size": 256)" +
         (more.empty() ? "" : ", " + more) + "}";
}

TEST(Config, ReadsTheNewFormOfRope) {
  const ModelConfig config =
      parse_config(llama_with(R"("dtype": "bfloat16", "rope_parameters": {"rope_theta": 500000.0,
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192})"),
                   "config.json");
  EXPECT_EQ(config.rope_theta, 500000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::llama3);
  EXPECT_EQ(config.rope_scaling.factor, 32.0);
  EXPECT_EQ(config.dtype, DType::bf16);
}

TEST(Config, ReadsLinearByItsOldName) {
  const ModelConfig config =
      parse_config(llama_with(R"("rope_scaling": {"type": "linear", "factor": 4})"), "config.json");
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::linear);
  EXPECT_EQ(config.rope_scaling.factor, 4.0);
}

TEST(Config, YarnStretchesTheContext) {
  const ModelConfig config =
      parse_config(llama_with(R"("rope_scaling": {"type": "yarn", "factor": 4.0,
                     "original_max_position_embeddings": 512})"),
                   "config.json");
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_FALSE(config.rope_scaling.attention_factor.has_value());
  const ModelConfig scaled =
      parse_config(llama_with(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "mscale": 0.707,
                     "mscale_all_dim": 1.0})"),
                   "config.json");
  const double want = (0.1 * 0.707 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1);
  ASSERT_TRUE(scaled.rope_scaling.attention_factor.has_value());
  EXPECT_NEAR(*scaled.rope_scaling.attention_factor, want, 1e-12);
}

TEST(Config, WhatIsNotSaidTakesTheDefaultsOfHuggingFace) {
  const ModelConfig config = parse_config(llama_with(""), "config.json");
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.norm_eps, 1e-6f);
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_EQ(config.dtype, DType::f32);
  EXPECT_FALSE(config.has_tied_embeddings);
  EXPECT_FALSE(config.bos_token.has_value());
  EXPECT_TRUE(config.eos_tokens.empty());
}

TEST(Config, AnExplicitHeadDimNeedNotDivideTheHiddenSize) {
  const ModelConfig config =
      parse_config(llama_with(R"("head_dim": 96, "num_key_value_heads": 2)"), "config.json");
  EXPECT_EQ(config.head_dim, 96);
}

TEST(Config, BiasesAreAsTheArchitectureHasThem) {
  const ModelConfig llama =
      parse_config(llama_with(R"("attention_bias": true, "mlp_bias": true)"), "config.json");
  EXPECT_TRUE(llama.has_qkv_bias && llama.has_output_bias && llama.has_mlp_bias);
  std::string text = llama_with("");
  text.replace(text.find("llama"), 5, "qwen2");
  const ModelConfig qwen2 = parse_config(text, "config.json");
  EXPECT_TRUE(qwen2.has_qkv_bias);
  EXPECT_FALSE(qwen2.has_output_bias || qwen2.has_mlp_bias);
}

ModelConfig parse_as(const std::string& type, const std::string& more) {
  std::string text = llama_with(more);
  text.replace(text.find("llama"), 5, type);
  return parse_config(text, "config.json");
}

TEST(Config, MistralHasAWindowUnlessItIsNull) {
  EXPECT_EQ(parse_as("mistral", R"("sliding_window": 128)").window, 128);
  EXPECT_EQ(parse_as("mistral", R"("sliding_window": 128)").window_of(0), 128);
  EXPECT_EQ(parse_as("mistral", R"("sliding_window": null)").window, 0);
}

TEST(Config, Qwen2HasAWindowOnlyWhereItIsUsed) {
  const std::string window = R"("sliding_window": 128, "max_window_layers": 3)";
  EXPECT_EQ(parse_as("qwen2", window).window, 0);
  const ModelConfig config = parse_as("qwen2", window + R"(, "use_sliding_window": true)");
  EXPECT_EQ(config.window_of(2), 0);
  EXPECT_EQ(config.window_of(3), 128);
  const ModelConfig listed =
      parse_as("qwen2", window + R"(, "use_sliding_window": true, "layer_types":
      ["full_attention", "full_attention", "sliding_attention", "sliding_attention"])");
  EXPECT_EQ(listed.window_of(1), 0);
  EXPECT_EQ(listed.window_of(2), 128);
}

TEST(Config, TheBundledModelIsRead) {
  const ModelConfig config = model::load_config(bundled_model());
  EXPECT_EQ(config.num_parameters(), 12'587'904);  // as its index says
  EXPECT_TRUE(config.has_tied_embeddings);
  EXPECT_EQ(config.dtype, DType::bf16);
  EXPECT_EQ(config.bos_token, 0);
  EXPECT_EQ(config.eos_tokens, std::vector<int32_t>{1});
}

TEST(Config, GenerationConfigAddsStopTokens) {
  const TemporaryFolder folder;
  folder.write("config.json", llama_with(R"("eos_token_id": 2)"));
  folder.write("generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [2, 7]})");
  const ModelConfig config = model::load_config(folder.path());
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, (std::vector<int32_t>{2, 7}));
}

TEST(Config, PresetsHaveTheParametersTheirNamesSay) {
  const auto billions = [](std::string_view name) {
    return static_cast<double>(model::find_preset(name)->num_parameters()) / 1e9;
  };
  EXPECT_NEAR(billions("tessera-13m"), 0.012588, 1e-6);
  EXPECT_NEAR(billions("llama2-7b"), 6.738, 1e-3);
  EXPECT_NEAR(billions("llama2-70b"), 68.977, 1e-3);
  EXPECT_NEAR(billions("llama3.1-8b"), 8.030, 1e-3);
  EXPECT_NEAR(billions("llama3.2-1b"), 1.236, 1e-3);
  EXPECT_NEAR(billions("llama3.2-3b"), 3.213, 1e-3);
  EXPECT_NEAR(billions("mistral-7b"), 7.242, 1e-3);
  EXPECT_NEAR(billions("qwen2-0.5b"), 0.494, 1e-3);
  EXPECT_NEAR(billions("qwen2-7b"), 7.616, 1e-3);
  EXPECT_FALSE(model::find_preset("llama9-1b").has_value());
  for (const std::string_view name : model::preset_names()) {
    EXPECT_TRUE(model::find_preset(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace tessera::testing
