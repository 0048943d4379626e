// Why a config.json is refused: each case with the words its message must contain.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "tests/core/message_of.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

using nlohmann::json;

constexpr std::string_view kGood = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "intermediate_size": 128, "max_position_embeddings": 512, "num_attention_heads": 4,
  "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 256, "rms_norm_eps": 1e-5,
  "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "float32"})";

// A merge patch on kGood: null removes a key.
struct Case {
  std::string_view patch;
  std::vector<std::string_view> words;
};

const std::vector<Case> kCases = {
    {R"({"hidden_size": null})", {"hidden_size", "is missing"}},
    {R"({"intermediate_size": null})", {"intermediate_size", "is missing"}},
    {R"({"num_hidden_layers": null})", {"num_hidden_layers", "is missing"}},
    {R"({"num_attention_heads": null})", {"num_attention_heads", "is missing"}},
    {R"({"vocab_size": null})", {"vocab_size", "is missing"}},
    {R"({"max_position_embeddings": null})", {"max_position_embeddings", "is missing"}},
    {R"({"model_type": null, "architectures": null})", {"model_type", "is missing"}},
    {R"({"num_hidden_layers": 0})", {"num_hidden_layers is 0", "from 1 to 1024"}},
    {R"({"num_hidden_layers": 1000000000})", {"num_hidden_layers is 1000000000", "1024"}},
    {R"({"num_hidden_layers": -3})", {"num_hidden_layers is -3"}},
    {R"({"num_hidden_layers": 2.5})", {"num_hidden_layers is 2.5", "whole number"}},
    {R"({"num_hidden_layers": "two"})", {"num_hidden_layers is \"two\""}},
    {R"({"num_hidden_layers": 18446744073709551615})",
     {"num_hidden_layers is 18446744073709551615"}},
    {R"({"hidden_size": 1000000000000})", {"hidden_size is 1000000000000", "262144"}},
    {R"({"intermediate_size": 4294967296})", {"intermediate_size is 4294967296", "1048576"}},
    {R"({"vocab_size": 2147483648})", {"vocab_size is 2147483648", "16777216"}},
    {R"({"num_attention_heads": 6})", {"num_attention_heads is 6", "divisor of hidden_size", "64"}},
    {R"({"num_key_value_heads": 3})", {"num_key_value_heads is 3", "divisor", "4"}},
    {R"({"num_key_value_heads": 0})", {"num_key_value_heads is 0"}},
    {R"({"num_key_value_heads": 8})", {"num_key_value_heads is 8", "divisor"}},
    {R"({"head_dim": 15})", {"head_dim is 15", "even"}},
    {R"({"head_dim": 0})", {"head_dim is 0"}},
    {R"({"hidden_size": 60})", {"head_dim is 15", "even"}},
    {R"({"max_position_embeddings": 0})", {"max_position_embeddings is 0"}},
    {R"({"max_position_embeddings": 1000000000})", {"max_position_embeddings is 1000000000"}},
    {R"({"rms_norm_eps": -1e-5})", {"rms_norm_eps is -1e-05"}},
    {R"({"rms_norm_eps": "small"})", {"rms_norm_eps is \"small\""}},
    {R"({"rope_theta": -10000.0})", {"rope_theta is -10000.0"}},
    {R"({"rope_theta": 0})", {"rope_theta is 0"}},
    {R"({"rope_theta": "10000"})", {"rope_theta is \"10000\""}},
    {R"({"rope_scaling": "linear"})", {"rope_scaling is \"linear\"", "an object"}},
    {R"({"rope_scaling": {"type": "dynamic", "factor": 2.0}})",
     {"rope_scaling.type is 'dynamic'", "not supported", "llama3"}},
    {R"({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}})",
     {"longrope", "not supported"}},
    {R"({"rope_scaling": {"rope_type": 7}})", {"rope_scaling.rope_type is 7", "a string"}},
    {R"({"rope_scaling": {"rope_type": "linear"}})", {"rope_scaling.factor is missing"}},
    {R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})", {"rope_scaling.factor is 0"}},
    {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0}})",
     {"original_max_position_embeddings is missing"}},
    {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0,
         "high_freq_factor": 1.0, "original_max_position_embeddings": 512}})",
     {"high_freq_factor is 1.0", "above low_freq_factor"}},
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 32}})",
     {"beta_fast is 1", "beta_slow 32"}},
    {R"({"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "truncate": false}})", {"truncate"}},
    {R"({"rope_parameters": {"rope_type": "ntk"}})", {"rope_parameters.rope_type is 'ntk'"}},
    {R"({"rope_parameters": {"rope_theta": -1.0}})", {"rope_parameters.rope_theta is -1.0"}},
    {R"({"rope_parameters": {"full_attention": {}}})", {"rope_parameters.full_attention"}},
    {R"({"partial_rotary_factor": 0.5})", {"partial_rotary_factor is 0.5"}},
    {R"({"model_type": "gpt2", "architectures": null})",
     {"model_type is \"gpt2\"", "llama, mistral, qwen2"}},
    {R"({"model_type": 3})", {"model_type is 3", "a string"}},
    {R"({"architectures": ["LlamaForSequenceClassification"]})",
     {"LlamaForSequenceClassification", "LlamaForCausalLM"}},
    {R"({"architectures": "LlamaForCausalLM"})", {"architectures", "a list of strings"}},
    {R"({"architectures": ["MistralForCausalLM"]})", {"architectures", "model_type is llama"}},
    {R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})",
     {"quantization_config.group_size is missing"}},
    {R"({"quantization_config": {}})", {"quantization_config.quant_method is missing"}},
    {R"({"quantization_config": {"quant_method": "quip"}})", {"\"quip\"", "gptq, awq"}},
    {R"({"hidden_act": "quick_gelu"})", {"hidden_act is \"quick_gelu\"", "silu"}},
    {R"({"torch_dtype": "float64"})", {"torch_dtype is \"float64\"", "bfloat16"}},
    {R"({"dtype": "int8"})", {"dtype is \"int8\""}},
    {R"({"tie_word_embeddings": "yes"})", {"tie_word_embeddings is \"yes\"", "true or false"}},
    {R"({"attention_bias": 1})", {"attention_bias is 1"}},
    {R"({"eos_token_id": 256})", {"eos_token_id is 256", "0 to 255"}},
    {R"({"eos_token_id": [2, -1]})", {"eos_token_id is [2,-1]"}},
    {R"({"bos_token_id": "<s>"})", {"bos_token_id is \"<s>\""}},
    {R"({"model_type": "mistral", "architectures": null, "sliding_window": 0})",
     {"sliding_window is 0"}},
    {R"({"model_type": "qwen2", "architectures": null, "use_sliding_window": true,
         "sliding_window": 64, "layer_types": ["sliding_attention", "chunked_attention"]})",
     {"layer_types", "full_attention and sliding_attention"}},
    {R"({"model_type": "qwen2", "architectures": null, "use_sliding_window": true,
         "sliding_window": 64, "layer_types": ["full_attention"]})",
     {"layer_types", "a list of 2"}},
};

void expect_config_refused(const std::string& text, const std::vector<std::string_view>& words) {
  const std::string message = message_of([&] { model::parse_config(text, "a.json"); });
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_TRUE(message.find("a.json: ") != std::string::npos) << message;
  for (const std::string_view word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' is not in: " << message;
  }
}

TEST(ConfigRefusal, TheFileTheCasesChangeIsGood) {
  EXPECT_EQ(message_of([] { model::parse_config(kGood, "a.json"); }), "");
}

TEST(ConfigRefusal, NamesTheKeyAndShowsItsValue) {
  for (const Case& refused : kCases) {
    SCOPED_TRACE(refused.patch);
    json config = json::parse(kGood);
    config.merge_patch(json::parse(refused.patch));
    expect_config_refused(config.dump(), refused.words);
  }
}

// What a merge patch cannot express: texts that are not a JSON object.
TEST(ConfigRefusal, RefusesWhatIsNotAnObject) {
  expect_config_refused("", {"is not JSON"});
  expect_config_refused("{", {"is not JSON at byte"});
  expect_config_refused("[]", {"is []", "an object"});
  expect_config_refused("null", {"is null"});
  expect_config_refused("7", {"is 7"});
  expect_config_refused(R"({"hidden_size": 1e999})", {"too large"});
  expect_config_refused("{\"a\": \"\xff\"}", {"is not JSON"});
}

TEST(ConfigRefusal, NanShowsWithItsKey) {
  std::string text(kGood);
  text.replace(text.find("10000.0"), 7, "NaN");
  expect_config_refused(text, {"is not JSON", "\"rope_theta\": N"});
}

TEST(ConfigRefusal, RefusesAKeyThatAppearsTwice) {
  std::string text(kGood);
  text.insert(1, R"("vocab_size": 7, )");
  expect_config_refused(text, {"'vocab_size' appears twice"});
}

// A million levels would overflow the stack of a parser that recurses, and of one that destroys
// its document by recursion.
TEST(ConfigRefusal, RefusesDeepNestingWithoutFollowingIt) {
  for (const std::string_view unit : {"[", "{\"a\":"}) {
    std::string text;
    while (text.size() < 900'000) text += unit;
    expect_config_refused(text, {"nests deeper than 16"});
  }
}

TEST(ConfigRefusal, RefusesHugeFilesUnread) {
  expect_config_refused(std::string(2 << 20, ' '), {"2097152 bytes"});
  const TemporaryFolder folder;
  folder.write("config.json", std::string(2 << 20, ' '));
  EXPECT_NE(message_of([&] { model::load_config(folder.path()); }).find("at most 1048576"),
            std::string::npos);
}

TEST(ConfigRefusal, SaysWhichFileIsMissing) {
  const TemporaryFolder folder;
  const std::string message = message_of([&] { model::load_config(folder.path()); });
  EXPECT_NE(message.find("config.json: there is no such file; give the folder"), std::string::npos)
      << message;
}

TEST(ConfigRefusal, ABadGenerationConfigIsNamed) {
  const TemporaryFolder folder;
  folder.write("config.json", kGood);
  folder.write("generation_config.json", R"({"eos_token_id": "</s>"})");
  const std::string message = message_of([&] { model::load_config(folder.path()); });
  EXPECT_NE(message.find("generation_config.json: eos_token_id is \"</s>\""), std::string::npos)
      << message;
}

}  // namespace
}  // namespace tessera::testing
