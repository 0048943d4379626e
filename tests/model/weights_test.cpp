// Loading weights: every element where it belongs, fused, cut to ranks, converted and quantised.
// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/message_of.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LlamaWeights;
using model::LoadOptions;
using model::ModelConfig;
using model::WeightFormat;

float at(const Tensor& tensor, int64_t row, int64_t col) {
  if (tensor.view().rank == 1) return load_as_float(tensor, std::vector<int64_t>{row});
  return load_as_float(tensor, std::vector<int64_t>{row, col});
}

// Where the elements of a fused tensor come from: rows of the named tensors, one after the other.
struct Source {
  std::string name;
  int64_t row;
  int64_t num_rows;
  int64_t col = 0;
};

void expect_filled(const Tensor& tensor, const std::vector<Source>& sources) {
  const int64_t num_cols = tensor.view().rank == 1 ? 1 : tensor.view().size(1);
  int64_t row = 0;
  for (const Source& source : sources) {
    for (int64_t i = 0; i < source.num_rows; ++i, ++row) {
      for (int64_t col = 0; col < num_cols; ++col) {
        ASSERT_EQ(at(tensor, row, col), value_at(source.name, source.row + i, source.col + col))
            << source.name << " [" << source.row + i << ", " << source.col + col << "]";
      }
    }
  }
  EXPECT_EQ(row, tensor.view().size(0));
}

struct Share {
  int rank = 0;
  int num_ranks = 1;
};

// Every tensor of a rank, of a model with all biases and a head of its own.
void expect_all_filled(const LlamaWeights& weights, const ModelConfig& c, Share share = {}) {
  const int64_t q = c.num_heads * c.head_dim / share.num_ranks;
  const int64_t kv = c.num_kv_heads * c.head_dim / share.num_ranks;
  const int64_t inter = c.inter / share.num_ranks;
  const int64_t vocab = c.vocab / share.num_ranks;
  const int64_t r = share.rank;
  expect_filled(weights.embedding, {{"model.embed_tokens.weight", 0, c.vocab}});
  expect_filled(weights.final_norm, {{"model.norm.weight", 0, c.hidden}});
  expect_filled(weights.head.weight, {{"lm_head.weight", r * vocab, vocab}});
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const model::LayerWeights& layer = weights.layers[i];
    const std::string p = "model.layers." + std::to_string(i) + ".";
    const auto qkv = [&](const std::string& what) {
      return std::vector<Source>{{p + "self_attn.q_proj." + what, r * q, q},
                                 {p + "self_attn.k_proj." + what, r * kv, kv},
                                 {p + "self_attn.v_proj." + what, r * kv, kv}};
    };
    const auto gate_up = [&](const std::string& what) {
      return std::vector<Source>{{p + "mlp.gate_proj." + what, r * inter, inter},
                                 {p + "mlp.up_proj." + what, r * inter, inter}};
    };
    expect_filled(layer.attention_norm, {{p + "input_layernorm.weight", 0, c.hidden}});
    expect_filled(layer.mlp_norm, {{p + "post_attention_layernorm.weight", 0, c.hidden}});
    expect_filled(layer.qkv.weight, qkv("weight"));
    expect_filled(layer.qkv.bias, qkv("bias"));
    expect_filled(layer.gate_up.weight, gate_up("weight"));
    expect_filled(layer.gate_up.bias, gate_up("bias"));
    expect_filled(layer.output.weight, {{p + "self_attn.o_proj.weight", 0, c.hidden, r * q}});
    expect_filled(layer.down.weight, {{p + "mlp.down_proj.weight", 0, c.hidden, r * inter}});
    EXPECT_EQ(layer.output.bias.size_bytes() > 0, r == 0);
    if (r == 0) expect_filled(layer.output.bias, {{p + "self_attn.o_proj.bias", 0, c.hidden}});
    if (r == 0) expect_filled(layer.down.bias, {{p + "mlp.down_proj.bias", 0, c.hidden}});
  }
}

ModelConfig biased_config() {
  ModelConfig config = tiny_config();
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  return config;
}

class LoadWeights : public ::testing::Test {
 protected:
  Checkpoint store(const std::vector<FileTensor>& tensors, size_t padding = 0) {
    folder_.write("model.safetensors", stored_tensors(tensors, padding));
    return Checkpoint::open(folder_.path());
  }
  std::string refusal(const std::vector<FileTensor>& tensors, const ModelConfig& config,
                      const LoadOptions& options = {}) {
    const Checkpoint checkpoint = store(tensors);
    return message_of([&] { load_weights(checkpoint, config, options); });
  }
  TemporaryFolder folder_;
};

TEST_F(LoadWeights, PutsEveryElementInItsPlaceFromEveryTypeToEveryType) {
  const ModelConfig config = biased_config();
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    const Checkpoint checkpoint = store(tiny_tensors(config, stored));
    for (const DType wanted : {DType::f32, DType::f16, DType::bf16}) {
      const LlamaWeights weights = load_weights(checkpoint, config, {.dtype = wanted});
      EXPECT_EQ(weights.layers[0].qkv.weight.view().dtype, wanted);
      expect_all_filled(weights, config);
      EXPECT_EQ(weights.size_bytes(), config.num_parameters() * bit_width(wanted) / 8);
    }
  }
}

TEST_F(LoadWeights, TakesDataThatIsMisaligned) {
  const ModelConfig config = biased_config();
  for (const DType stored : {DType::f32, DType::bf16}) {
    const Checkpoint checkpoint = store(tiny_tensors(config, stored), 1);
    for (const DType wanted : {DType::f32, DType::bf16}) {
      expect_all_filled(load_weights(checkpoint, config, {.dtype = wanted}), config);
    }
  }
}

TEST_F(LoadWeights, CutsTheModelIntoRanks) {
  const ModelConfig config = biased_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  for (const int rank : {0, 1}) {
    const LlamaWeights weights =
        load_weights(checkpoint, config, {.dtype = DType::f32, .rank = rank, .num_ranks = 2});
    expect_all_filled(weights, config, {rank, 2});
  }
}

TEST_F(LoadWeights, RefusesRanksThatDoNotDivideTheModel) {
  const ModelConfig config = tiny_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const auto load = [&](int rank, int num_ranks) {
    return message_of(
        [&] { load_weights(checkpoint, config, {.rank = rank, .num_ranks = num_ranks}); });
  };
  EXPECT_NE(load(0, 4).find("num_kv_heads is 2 and cannot be shared by 4"), std::string::npos);
  EXPECT_NE(load(2, 2).find("rank is 2 of 2"), std::string::npos);
}

TEST_F(LoadWeights, ATiedHeadIsTheEmbedding) {
  ModelConfig config = tiny_config();
  config.has_tied_embeddings = true;
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const LlamaWeights plain = load_weights(checkpoint, config, {.dtype = DType::f32});
  EXPECT_EQ(plain.head.weight.size_bytes(), 0);
  const LlamaWeights int8 =
      load_weights(checkpoint, config, {.dtype = DType::f32, .format = WeightFormat::int8});
  EXPECT_EQ(int8.head.weight.view().dtype, DType::i8);
}

TEST_F(LoadWeights, Int8KeepsEveryValueWithinHalfAStepOfItsRow) {
  const ModelConfig config = biased_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const LlamaWeights plain = load_weights(checkpoint, config, {.dtype = DType::f32});
  const LlamaWeights int8 =
      load_weights(checkpoint, config, {.dtype = DType::bf16, .format = WeightFormat::int8});
  const model::Linear& want = plain.layers[1].qkv;
  const model::Linear& got = int8.layers[1].qkv;
  ASSERT_TRUE(got.weight.view().same_shape(want.weight.view()));
  for (int64_t row = 0; row < want.weight.view().size(0); ++row) {
    const float scale = at(got.scale, row, 0);
    for (int64_t col = 0; col < want.weight.view().size(1); ++col) {
      const float value = at(got.weight, row, col) * scale;
      EXPECT_LE(std::fabs(value - at(want.weight, row, col)), 0.5001f * scale);
    }
  }
  EXPECT_EQ(got.bias.view().dtype, DType::bf16);
  EXPECT_EQ(int8.embedding.view().dtype, DType::bf16);
}

TEST_F(LoadWeights, NamesATensorThatIsMissing) {
  const ModelConfig config = biased_config();
  for (const std::string name :
       {"model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.up_proj.bias",
        "model.norm.weight", "lm_head.weight"}) {
    std::vector<FileTensor> tensors = tiny_tensors(config);
    std::erase_if(tensors, [&](const FileTensor& tensor) { return tensor.name == name; });
    const std::string message = refusal(tensors, config);
    EXPECT_NE(message.find("'" + name + "'"), std::string::npos) << message;
    EXPECT_NE(message.find("is missing"), std::string::npos) << message;
  }
}

TEST_F(LoadWeights, NamesATensorOfAnotherShapeAndShowsBoth) {
  ModelConfig config = tiny_config();
  const std::vector<FileTensor> tensors = tiny_tensors(config);
  config.vocab = 130;
  std::string message = refusal(tensors, config);
  EXPECT_NE(message.find("'model.embed_tokens.weight' has shape [128, 64]"), std::string::npos);
  EXPECT_NE(message.find("asks for [130, 64]"), std::string::npos) << message;
  config.vocab = 128;
  config.num_kv_heads = 4;
  message = refusal(tensors, config);
  EXPECT_NE(message.find("self_attn.k_proj.weight' has shape [128, 64]"), std::string::npos);
  EXPECT_NE(message.find("asks for [256, 64]"), std::string::npos) << message;
}

TEST_F(LoadWeights, RefusesTensorsThatWouldChangeTheModel) {
  const ModelConfig config = tiny_config();
  for (const std::string name :
       {"model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.bias",
        "model.layers.2.input_layernorm.weight", "lm_head.bias"}) {
    std::vector<FileTensor> tensors = tiny_tensors(config);
    tensors.push_back({name, {2}, {1, 1}});
    const std::string message = refusal(tensors, config);
    EXPECT_NE(message.find("'" + name + "' [2] has no place"), std::string::npos) << message;
  }
}

TEST_F(LoadWeights, IgnoresTensorsThatTheModelDoesNotRead) {
  ModelConfig config = tiny_config();
  config.has_tied_embeddings = true;
  std::vector<FileTensor> tensors = tiny_tensors(config);
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}, {1, 1}});
  tensors.push_back({"lm_head.weight", {2}, {1, 1}});
  tensors.push_back({"value_head.weight", {2}, {1, 1}});
  EXPECT_EQ(refusal(tensors, config, {.dtype = DType::f32}), "");
}

TEST_F(LoadWeights, RefusesTypesThatAreNoWeights) {
  const ModelConfig config = tiny_config();
  for (const std::string type : {"I32", "U32"}) {
    std::string file = stored_tensors(tiny_tensors(config));
    const size_t entry = file.find("\"model.norm.weight\"");
    const size_t field = file.find("\"dtype\":\"F32\"", entry);
    file.replace(field + 9, 3, type);
    folder_.write("model.safetensors", file);
    const Checkpoint checkpoint = Checkpoint::open(folder_.path());
    const std::string message = message_of([&] { load_weights(checkpoint, config, {}); });
    EXPECT_NE(message.find(type), std::string::npos) << message;
  }
}

// Codes have no value for them, so weights that are quantised are checked without being asked.
TEST_F(LoadWeights, FindsValuesThatAreNotFiniteWhenAskedAndWhenTheyAreQuantised) {
  const ModelConfig config = tiny_config();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity}) {
    std::vector<FileTensor> tensors = tiny_tensors(config);
    for (FileTensor& tensor : tensors) {
      if (tensor.name == "model.layers.1.mlp.down_proj.weight") tensor.values[3 * 96 + 5] = bad;
    }
    for (const LoadOptions& options :
         {LoadOptions{.check_values = true}, LoadOptions{.format = WeightFormat::int8},
          LoadOptions{.dtype = DType::f32, .format = WeightFormat::int8}}) {
      const std::string message = refusal(tensors, config, options);
      EXPECT_NE(message.find("'model.layers.1.mlp.down_proj.weight'"), std::string::npos);
      EXPECT_NE(message.find("at [3, 5]"), std::string::npos) << message;
    }
    EXPECT_EQ(refusal(tensors, config), "");
  }
}

TEST_F(LoadWeights, SaysWhenAValueIsBeyondTheTypeAskedFor) {
  const ModelConfig config = tiny_config();
  std::vector<FileTensor> tensors = tiny_tensors(config);
  tensors[1].values[7] = 1e5f;  // model.norm.weight
  EXPECT_EQ(refusal(tensors, config, {.dtype = DType::bf16, .check_values = true}), "");
  const std::string message = refusal(tensors, config, {.dtype = DType::f16, .check_values = true});
  EXPECT_NE(
      message.find("'model.norm.weight' holds 100000 at [7], which is beyond the range of f16"),
      std::string::npos)
      << message;
}

// A mapping of such a file would end the process by a signal.
TEST_F(LoadWeights, NamesAFileThatShrinksWhileItIsLoaded) {
  const ModelConfig config = tiny_config();
  const std::filesystem::path path = folder_.path() / "model.safetensors";
  for (const WeightFormat format : {WeightFormat::plain, WeightFormat::int8}) {
    for (const DType stored : {DType::f32, DType::bf16}) {
      const Checkpoint checkpoint = store(tiny_tensors(config, stored));
      const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
      const auto shrink = [&](int64_t done, int64_t) {
        if (done > 0) std::filesystem::resize_file(path, static_cast<uintmax_t>(size / 2));
      };
      const std::string message = message_of([&] {
        load_weights(checkpoint, config,
                     {.dtype = DType::bf16, .format = format, .on_progress = shrink});
      });
      EXPECT_NE(message.find(path.string() + ": ends at byte "), std::string::npos) << message;
      EXPECT_NE(message.find(" and had " + std::to_string(size)), std::string::npos) << message;
    }
  }
}

TEST_F(LoadWeights, NeedsNothingOfTheFileOnceItIsLoaded) {
  const ModelConfig config = biased_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const LlamaWeights weights = load_weights(checkpoint, config, {.dtype = DType::f32});
  std::filesystem::resize_file(folder_.path() / "model.safetensors", 0);
  expect_all_filled(weights, config);
}

TEST_F(LoadWeights, ReportsProgressToTheEnd) {
  const ModelConfig config = tiny_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  std::vector<std::pair<int64_t, int64_t>> reports;
  load_weights(checkpoint, config, {.on_progress = [&](int64_t done, int64_t total) {
                 reports.emplace_back(done, total);
               }});
  ASSERT_GT(reports.size(), 10u);
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_GE(reports[i].first, reports[i - 1].first);
  EXPECT_EQ(reports.back().first, reports.back().second);
}

// Random weights have the deviation that keeps activations in size, and depend on the seed alone.
TEST(RandomWeights, AreNearNormalAndFixedByTheSeed) {
  const ModelConfig config = tiny_config();
  const LlamaWeights first = make_random_weights(config, {.dtype = DType::f32}, 1);
  const LlamaWeights again = make_random_weights(config, {.dtype = DType::f32}, 1);
  const LlamaWeights other = make_random_weights(config, {.dtype = DType::f32}, 2);
  const Tensor& weight = first.layers[1].gate_up.weight;
  double sum = 0, squares = 0;
  int64_t num_equal = 0;
  const int64_t count = weight.view().num_elements();
  for (int64_t i = 0; i < count; ++i) {
    const double value = weight.view().as<float>()[i];
    EXPECT_EQ(value, again.layers[1].gate_up.weight.view().as<float>()[i]);
    num_equal += value == other.layers[1].gate_up.weight.view().as<float>()[i] ? 1 : 0;
    sum += value;
    squares += value * value;
  }
  const double n = static_cast<double>(count);
  // Five deviations of the mean, and of the mean square, of n normal values of variance 1 / 64.
  EXPECT_NEAR(sum / n, 0.0, 5.0 / 8.0 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0 / 64.0, 5.0 / 64.0 * std::sqrt(2.0 / n));
  EXPECT_LT(num_equal, count / 50);  // of 1021 values
  EXPECT_EQ(at(first.layers[0].mlp_norm, 5, 0), 1.0f);
}

TEST(RandomWeights, RanksHoldPartsOfTheWhole) {
  const ModelConfig config = tiny_config();
  const LlamaWeights whole = make_random_weights(config, {.dtype = DType::f32}, 1);
  const LlamaWeights part =
      make_random_weights(config, {.dtype = DType::f32, .rank = 1, .num_ranks = 2}, 1);
  EXPECT_EQ(at(part.layers[0].down.weight, 3, 5), at(whole.layers[0].down.weight, 3, 48 + 5));
  EXPECT_EQ(at(part.layers[0].gate_up.weight, 48 + 3, 5),
            at(whole.layers[0].gate_up.weight, 96 + 48 + 3, 5));
}

}  // namespace
}  // namespace tessera::testing
