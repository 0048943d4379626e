// quantization_config: what is read from it, which layers it is about, and what is refused.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config_fields.h"
#include "model/formats/name_pattern.h"
#include "model/formats/stored_format.h"
#include "tests/core/message_of.h"

namespace tessera::testing {
namespace {

using model::CodeForm;
using model::NamePattern;
using model::Storage;
using model::StoredFormat;
using model::StoredFormats;

constexpr const char* kQuery = "model.layers.3.self_attn.q_proj";
constexpr const char* kDown = "model.layers.3.mlp.down_proj";

std::shared_ptr<const StoredFormats> parse(const std::string& text) {
  const nlohmann::json document = nlohmann::json::parse(text);
  return StoredFormats::parse(model::Fields(document, "config.json: quantization_config."));
}

TEST(QuantizationConfig, ReadsGptq) {
  const auto formats = parse(
      R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": true, "sym": false})");
  const StoredFormat& format = formats->of(kQuery);
  EXPECT_EQ(format.storage, Storage::gptq);
  EXPECT_EQ(model::to_string(format), "gptq, 4 bits, groups of 128, zero points, act-order");
  EXPECT_EQ(
      form_of(format, 4096),
      (CodeForm{.codes = DType::i4, .group = 128, .has_zero_points = true, .has_order = true}));
  EXPECT_EQ(form_of(format, 4000), std::nullopt) << "the last group is incomplete";
  EXPECT_EQ(formats->of("lm_head").storage, Storage::values);
  EXPECT_EQ(formats->of("model.embed_tokens").storage, Storage::values);
}

TEST(QuantizationConfig, ReadsGptqVersion2WithoutGroups) {
  const auto formats = parse(R"({"quant_method": "gptq", "bits": 8, "group_size": -1,
      "desc_act": true, "checkpoint_format": "gptq_v2", "lm_head": true})");
  const StoredFormat& format = formats->of("lm_head");
  EXPECT_EQ(format.storage, Storage::gptq_v2);
  EXPECT_EQ(form_of(format, 4096), CodeForm{}) << "i8, a scale per row, nothing to sort";
}

TEST(QuantizationConfig, ReadsAwqInBothSpellings) {
  for (const char* text :
       {R"({"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm",
            "modules_to_not_convert": ["down_proj"]})",
        R"({"quant_method": "awq", "w_bit": 4, "q_group_size": 64,
            "modules_to_not_convert": ["down_proj"]})"}) {
    const auto formats = parse(text);
    EXPECT_EQ(form_of(formats->of(kQuery), 256),
              (CodeForm{.codes = DType::i4, .group = 64, .has_zero_points = true}));
    EXPECT_EQ(formats->of(kDown).storage, Storage::values);
  }
}

std::string compressed(const std::string& weights, const std::string& format,
                       const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
             "weights": {)" +
         weights + "}" + more + "}}}";
}

TEST(QuantizationConfig, ReadsTheSchemesOfCompressedTensors) {
  struct Case {
    const char *weights, *format;
    CodeForm form;
  };
  const Case cases[] = {
      {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": true)",
       "pack-quantized",
       {.codes = DType::i4, .group = 128}},
      {R"("num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": false,
          "actorder": "group")",
       "pack-quantized",
       {.codes = DType::i4, .group = 128, .has_zero_points = true, .has_order = true}},
      {R"("num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true,
          "actorder": "weight")",
       "pack-quantized",
       {.codes = DType::i8}},
      {R"("num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true)",
       "int-quantized",
       {.codes = DType::i8}},
      {R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": true,
          "scale_dtype": "torch.uint8")",
       "mxfp4-pack-quantized",
       {.codes = DType::i4, .group = 32, .has_table = true}},
      {R"("num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true)",
       "float-quantized",
       {.codes = DType::e4m3}},
      {R"("num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true)",
       "float-quantized",
       {.codes = DType::e4m3}},
      {R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128])",
       "float-quantized",
       {.codes = DType::e4m3, .group = 128, .rows_per_scale = 128}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.weights);
    const auto formats = parse(compressed(one.weights, one.format));
    EXPECT_EQ(form_of(formats->of(kDown), 512), one.form);
    EXPECT_EQ(formats->of("lm_head").storage, Storage::values);
    EXPECT_TRUE(formats->notes.empty());
  }
}

TEST(QuantizationConfig, ReadsWhatInputsAreMeantToBe) {
  struct Case {
    std::string weights, format, inputs;
    bool takes_codes, has_input_scale;
    std::string note = {};
  };
  const std::string int8 = R"("num_bits": 8, "type": "int", "strategy": "channel")";
  const std::string fp8 = R"("num_bits": 8, "type": "float", "strategy": "channel")";
  const std::string int4 = R"("num_bits": 4, "strategy": "group", "group_size": 128)";
  const std::vector<Case> cases = {
      {int8, "int-quantized", R"("num_bits": 8, "type": "int", "dynamic": true)", true, false},
      {int8, "int-quantized", R"("num_bits": 8, "type": "int", "dynamic": false)", true, true},
      {int8, "int-quantized", R"("num_bits": 8, "dynamic": true, "symmetric": false)", true, false,
       "quantised symmetrically"},
      {fp8, "float-quantized", R"("num_bits": 8, "type": "float", "dynamic": true,
                                  "strategy": "token")",
       true, false},
      {fp8, "float-quantized", R"("num_bits": 8, "type": "float")", true, true},
      {fp8, "float-quantized", R"("num_bits": 8, "type": "int")", false, false,
       "asks for 8-bit integers beside weights stored as e4m3"},
      {int4, "pack-quantized", R"("num_bits": 8, "type": "int")", false, false,
       "products take values instead"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.inputs);
    const auto formats = parse(
        compressed(one.weights, one.format, R"(, "input_activations": {)" + one.inputs + "}"));
    EXPECT_EQ(formats->of(kDown).takes_codes, one.takes_codes);
    EXPECT_EQ(formats->of(kDown).has_input_scale, one.has_input_scale);
    ASSERT_EQ(formats->notes.size(), one.note.empty() ? 0u : 1u);
    if (one.note.empty()) continue;
    EXPECT_NE(formats->notes[0].find(one.note), std::string::npos);
  }
  const auto fp8_static = parse(R"({"quant_method": "fp8", "activation_scheme": "static"})");
  EXPECT_TRUE(fp8_static->of(kDown).takes_codes && fp8_static->of(kDown).has_input_scale);
}

TEST(QuantizationConfig, ReadsFp8WithAndWithoutBlocks) {
  const auto blocks = parse(R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme":
      "dynamic", "weight_block_size": [128, 128]})");
  EXPECT_EQ(blocks->of(kDown).scale_suffix, "weight_scale_inv");
  EXPECT_EQ(form_of(blocks->of(kDown), 512),
            (CodeForm{.codes = DType::e4m3, .group = 128, .rows_per_scale = 128}));
  const auto whole = parse(R"({"quant_method": "fp8", "ignored_layers": ["q_proj"]})");
  EXPECT_EQ(form_of(whole->of(kDown), 512), CodeForm{.codes = DType::e4m3});
  EXPECT_EQ(whole->of(kQuery).storage, Storage::values);
}

TEST(QuantizationConfig, ReadsNf4) {
  const auto formats = parse(R"({"quant_method": "bitsandbytes", "load_in_4bit": true,
      "bnb_4bit_quant_type": "nf4", "llm_int8_skip_modules": ["q_proj"]})");
  const StoredFormat& format = formats->of(kDown);
  EXPECT_EQ(model::to_string(format), "nf4, groups of 64");
  const CodeForm form{.codes = DType::i4, .group = 64, .has_table = true};
  EXPECT_EQ(form_of(format, 256), form);
  EXPECT_EQ(model::to_string(form), "i4 of a table, groups of 64");
  EXPECT_EQ(form_of(format, 224), std::nullopt) << "blocks reach from one row into the next";
  EXPECT_EQ(formats->of(kQuery).storage, Storage::values);
}

// A joined weight has one table, and codes that are numbers have none.
TEST(CodeForm, HoldsOnlyPartsWithATableBesideEachOther) {
  const CodeForm table{.codes = DType::i4, .group = 64, .has_table = true};
  CodeForm half = table, number = table;
  half.group = 32;
  number.has_table = false;
  EXPECT_EQ(common_form(std::vector{table, half}, 128), half);
  EXPECT_EQ(common_form(std::vector{table, number}, 128), std::nullopt);
  EXPECT_EQ(form_bytes(table, 8, 128) - form_bytes(number, 8, 128), 64);
}

// Joined parts keep a 16-bit type of scales only if all have the same one. In rows scales are f32.
TEST(CodeForm, HasTheTypeOfScalesThatHoldsThoseOfAllParts) {
  const CodeForm brain{.codes = DType::i4, .group = 64, .scale = DType::bf16};
  CodeForm fine = brain, half = brain, bytes = brain;
  fine.group = 32;
  half.scale = DType::f16;
  bytes.codes = DType::i8;
  EXPECT_EQ(common_form(std::vector{brain, brain}, 128), brain);
  EXPECT_EQ(common_form(std::vector{brain, fine}, 128), fine);
  EXPECT_EQ(common_form(std::vector{brain, half}, 128)->scale, DType::f32);
  EXPECT_EQ(common_form(std::vector{half, brain, half}, 128)->scale, DType::f32);
  EXPECT_EQ(common_form(std::vector{brain, bytes}, 128), bytes);
  EXPECT_EQ(kept_scale(brain, Packing::fragments), DType::bf16);
  EXPECT_EQ(kept_scale(brain, Packing::rows), DType::f32);
  EXPECT_EQ(model::form_of(WeightFormat::int4, 256, 128, "w")->scale, DType::bf16);
  EXPECT_EQ(model::form_of(WeightFormat::int8, 256, 128, "w")->scale, DType::f32);
}

TEST(QuantizationConfig, RefusesByNameAndValue) {
  struct Case {
    const char* text;
    std::vector<const char*> parts;
  };
  const Case cases[] = {
      {R"({"quant_method": "gptq", "bits": 3, "group_size": 128})", {".bits is 3", "4 or 8"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 0})", {".group_size is 0"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 12})", {".group_size is 12"}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "marlin"})",
       {"checkpoint_format is \"marlin\""}},
      {R"({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"-:lm": {}}})",
       {".dynamic is"}},
      {R"({"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemv"})",
       {".version is \"gemv\"", "gemm"}},
      {R"({"quant_method": "awq", "bits": 8, "group_size": 128})", {".bits is 8"}},
      {R"({"quant_method": "fp8", "weight_block_size": [128]})", {".weight_block_size is [128]"}},
      {R"({"quant_method": "fp8", "fmt": "e5m2"})", {".fmt is \"e5m2\""}},
      {R"({"quant_method": "bitsandbytes", "load_in_8bit": true})", {"load_in_4bit is not set"}},
      {R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "fp4"})",
       {".bnb_4bit_quant_type is \"fp4\""}},
      {R"({"quant_method": "compressed-tensors"})", {".config_groups is missing"}},
      {R"({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float"}}}})",
       {"g.weights.num_bits is 4"}},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}})",
       {"g.weights.num_bits is 8", "4 in the format mxfp4-pack-quantized"}},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int",
                  "strategy": "group", "group_size": 32}}}})",
       {"format is 'mxfp4-pack-quantized' for 4-bit integers"}},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
                  "strategy": "group", "group_size": 16}}}})",
       {"g.weights.group_size is 16", "32"}},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
                  "strategy": "channel"}}}})",
       {"g.weights.strategy is \"channel\"", "group"}},
      {R"({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float"}}}})",
       {"g.weights.strategy is missing", "group, as MXFP4 has it"}},
      {R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32}}}})",
       {"g.weights.strategy is missing", "channel or group"}},
      {R"({"quant_method": "compressed-tensors", "format": "marlin-24", "config_groups":
           {"g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}}}})",
       {"format is 'marlin-24'"}},
      {R"j({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
           {"g": {"targets": ["re:(?!a)"], "weights": {"num_bits": 4, "strategy": "channel"}}}})j",
       {"targets: the pattern '(?!a)' has a group with ?"}},
  };
  for (const Case& one : cases) {
    const std::string message = message_of([&] { parse(one.text); });
    for (const char* part : one.parts) {
      EXPECT_NE(message.find(part), std::string::npos) << one.text << "\n" << message;
    }
  }
}

bool matches(const char* pattern, const char* name) {
  return NamePattern(pattern, "test: ").matches(name);
}

TEST(NamePattern, ComponentsMatchWholeNames) {
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_TRUE(matches("mlp.down_proj", kDown));
  EXPECT_TRUE(matches("layers.3", kDown));
  EXPECT_FALSE(matches("down", kDown));
  EXPECT_FALSE(matches("layers.30", kDown));
}

TEST(NamePattern, ExpressionsMatchFromTheStart) {
  EXPECT_TRUE(matches("re:.*down_proj", kDown));
  EXPECT_FALSE(matches("re:down_proj", kDown));
  EXPECT_TRUE(matches("re:.*layers\\.\\d+\\.mlp", kDown));
  EXPECT_TRUE(matches("re:.*(q|k|v)_proj$", kQuery));
  EXPECT_FALSE(matches("re:.*(q|k|v)_proj$", kDown));
  EXPECT_TRUE(matches("re:^model.layers.[0-3]\\..*$", kDown));
  EXPECT_FALSE(matches("re:^model.layers.[^0-3]\\..*$", kDown));
  EXPECT_TRUE(matches("re:(?:a+b?)+c", "aabac"));
  EXPECT_FALSE(matches("re:(?:a+b?)+c", "aabbc"));
}

// A matcher that tries one way after the other would not return.
TEST(NamePattern, TakesTimeProportionalToTheName) {
  const std::string many(2000, 'a');
  EXPECT_FALSE(matches("re:(a*)*(a*)*(a+)+b", many.c_str()));
}

TEST(NamePattern, RefusesWhatItDoesNotKnow) {
  for (const char* pattern : {"", "re:", "re:a{2}", "re:(a", "re:a)", "re:[a", "re:*a", "re:\\b"}) {
    EXPECT_NE(message_of([&] { NamePattern(pattern, "test: "); }).find("test: "), std::string::npos)
        << pattern;
  }
}

}  // namespace
}  // namespace tessera::testing
