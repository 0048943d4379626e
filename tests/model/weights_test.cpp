// Loading weights: every element in its place after fusing, sharding, converting and quantising.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "model/model.h"
#include "tests/core/message_of.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LoadOptions;
using model::Model;
using model::ModelConfig;
using model::WeightFormat;

// A weight by the name of its tensor or, where it is made of several, by the layer's name for it.
const TensorView& weight_of(const std::unique_ptr<Model>& loaded, const std::string& name) {
  return loaded->weights().find(name).values;
}

float at(const TensorView& tensor, int64_t row, int64_t col) {
  if (tensor.rank == 1) return load_as_float(tensor, std::vector<int64_t>{row});
  return load_as_float(tensor, std::vector<int64_t>{row, col});
}

// Where the elements of a fused tensor come from: rows of the named tensors, one after the other.
struct Source {
  std::string name;
  int64_t row;
  int64_t num_rows;
  int64_t col = 0;
};

void expect_filled(const TensorView& tensor, const std::vector<Source>& sources) {
  const int64_t num_cols = tensor.rank == 1 ? 1 : tensor.size(1);
  int64_t row = 0;
  for (const Source& source : sources) {
    for (int64_t i = 0; i < source.num_rows; ++i, ++row) {
      for (int64_t col = 0; col < num_cols; ++col) {
        ASSERT_EQ(at(tensor, row, col), value_at(source.name, source.row + i, source.col + col))
            << source.name << " [" << source.row + i << ", " << source.col + col << "]";
      }
    }
  }
  EXPECT_EQ(row, tensor.size(0));
}

struct Share {
  int rank = 0;
  int num_ranks = 1;
};

// Every tensor of a rank, of a model with all biases and a head of its own.
void expect_all_filled(const std::unique_ptr<Model>& loaded, const ModelConfig& c,
                       Share share = {}) {
  const int64_t q = c.num_heads * c.head_dim / share.num_ranks;
  const int64_t kv = c.num_kv_heads * c.head_dim / share.num_ranks;
  const int64_t inter = c.inter / share.num_ranks;
  const int64_t vocab = c.vocab / share.num_ranks;
  const int64_t r = share.rank;
  const auto expect_one = [&](const std::string& name, const std::vector<Source>& sources) {
    expect_filled(weight_of(loaded, name), sources);
  };
  expect_one("model.embed_tokens.weight", {{"model.embed_tokens.weight", 0, c.vocab}});
  expect_one("model.norm.weight", {{"model.norm.weight", 0, c.hidden}});
  expect_one("lm_head.weight", {{"lm_head.weight", r * vocab, vocab}});
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    for (const std::string norm : {"input_layernorm.weight", "post_attention_layernorm.weight"}) {
      expect_one(p + norm, {{p + norm, 0, c.hidden}});
    }
    for (const std::string what : {".weight", ".bias"}) {
      expect_one(p + "self_attn.qkv" + what, {{p + "self_attn.q_proj" + what, r * q, q},
                                              {p + "self_attn.k_proj" + what, r * kv, kv},
                                              {p + "self_attn.v_proj" + what, r * kv, kv}});
      std::vector<Source> gate_up;  // 8 rows of each in turn, as pack_gate_up orders them
      for (int64_t row = r * inter; row < (r + 1) * inter; row += 8) {
        gate_up.push_back({p + "mlp.gate_proj" + what, row, 8});
        gate_up.push_back({p + "mlp.up_proj" + what, row, 8});
      }
      expect_one(p + "mlp.gate_up" + what, gate_up);
    }
    const std::string output = p + "self_attn.o_proj", down = p + "mlp.down_proj";
    expect_one(output + ".weight", {{output + ".weight", 0, c.hidden, r * q}});
    expect_one(down + ".weight", {{down + ".weight", 0, c.hidden, r * inter}});
    for (const std::string& name : {output + ".bias", down + ".bias"}) {
      if (r == 0) {
        expect_one(name, {{name, 0, c.hidden}});
      } else {  // the sum over the ranks takes it once
        EXPECT_NE(message_of([&] { weight_of(loaded, name); }), "");
      }
    }
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
    return message_of([&] { load_model(checkpoint, config, options); });
  }
  TemporaryFolder folder_;
};

TEST_F(LoadWeights, PutsEveryElementInItsPlaceFromEveryTypeToEveryType) {
  const ModelConfig config = biased_config();
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    const Checkpoint checkpoint = store(tiny_tensors(config, stored));
    for (const DType wanted : {DType::f32, DType::f16, DType::bf16}) {
      const auto loaded = load_model(checkpoint, config, {.dtype = wanted});
      EXPECT_EQ(weight_of(loaded, "model.layers.0.self_attn.qkv.weight").dtype, wanted);
      expect_all_filled(loaded, config);
      EXPECT_EQ(loaded->weight_bytes(), config.num_parameters() * bit_width(wanted) / 8);
    }
  }
}

TEST_F(LoadWeights, TakesDataThatIsMisaligned) {
  const ModelConfig config = biased_config();
  for (const DType stored : {DType::f32, DType::bf16}) {
    const Checkpoint checkpoint = store(tiny_tensors(config, stored), 1);
    for (const DType wanted : {DType::f32, DType::bf16}) {
      expect_all_filled(load_model(checkpoint, config, {.dtype = wanted}), config);
    }
  }
}

TEST_F(LoadWeights, CutsTheModelIntoRanks) {
  const ModelConfig config = biased_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  for (const int rank : {0, 1}) {
    const auto loaded =
        load_model(checkpoint, config, {.dtype = DType::f32, .rank = rank, .num_ranks = 2});
    expect_all_filled(loaded, config, {rank, 2});
  }
}

TEST_F(LoadWeights, RefusesRanksThatDoNotDivideTheModel) {
  const ModelConfig config = tiny_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const auto load = [&](int rank, int num_ranks) {
    return message_of(
        [&] { load_model(checkpoint, config, {.rank = rank, .num_ranks = num_ranks}); });
  };
  EXPECT_NE(load(0, 4).find("num_kv_heads is 2 and cannot be shared by 4"), std::string::npos);
  EXPECT_NE(load(2, 2).find("rank is 2 of 2"), std::string::npos);
}

TEST_F(LoadWeights, ATiedHeadIsTheEmbedding) {
  ModelConfig config = tiny_config();
  config.has_tied_embeddings = true;
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const auto plain = load_model(checkpoint, config, {.dtype = DType::f32});
  EXPECT_NE(message_of([&] { weight_of(plain, "lm_head.weight"); }), "");
  const auto int8 =
      load_model(checkpoint, config, {.dtype = DType::f32, .format = WeightFormat::int8});
  EXPECT_EQ(weight_of(int8, "lm_head.weight").dtype, DType::i8);
}

TEST_F(LoadWeights, Int8KeepsEveryValueWithinHalfAStepOfItsRow) {
  const ModelConfig config = biased_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const auto plain = load_model(checkpoint, config, {.dtype = DType::f32});
  const auto int8 =
      load_model(checkpoint, config, {.dtype = DType::bf16, .format = WeightFormat::int8});
  for (const std::string name : {"self_attn.qkv", "mlp.gate_up", "mlp.down_proj"}) {
    const std::string weight = "model.layers.1." + name + ".weight";
    const TensorView& want = weight_of(plain, weight);
    const model::LinearWeight& got = int8->weights().find(weight);
    ASSERT_TRUE(got.values.same_shape(want));
    for (int64_t row = 0; row < want.size(0); ++row) {
      const float scale = at(got.scale, row, 0);
      for (int64_t col = 0; col < want.size(1); ++col) {
        const float value = at(got.values, row, col) * scale;
        ASSERT_LE(std::fabs(value - at(want, row, col)), 0.5001f * scale) << name;
      }
    }
  }
  EXPECT_EQ(weight_of(int8, "model.layers.1.self_attn.qkv.bias").dtype, DType::bf16);
  EXPECT_EQ(weight_of(int8, "model.embed_tokens.weight").dtype, DType::bf16);
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
    const std::string message = message_of([&] { load_model(checkpoint, config, {}); });
    EXPECT_NE(message.find(type), std::string::npos) << message;
  }
}

// Integer codes cannot represent them, so quantised weights are always checked.
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
  for (FileTensor& tensor : tensors) {
    if (tensor.name == "model.norm.weight") tensor.values[7] = 1e5f;
  }
  EXPECT_EQ(refusal(tensors, config, {.dtype = DType::bf16, .check_values = true}), "");
  const std::string message = refusal(tensors, config, {.dtype = DType::f16, .check_values = true});
  EXPECT_NE(
      message.find("'model.norm.weight' holds 100000 at [7], which is beyond the range of f16"),
      std::string::npos)
      << message;
}

// Had the file been mapped, the process would die of a signal.
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
        load_model(checkpoint, config,
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
  const auto loaded = load_model(checkpoint, config, {.dtype = DType::f32});
  std::filesystem::resize_file(folder_.path() / "model.safetensors", 0);
  expect_all_filled(loaded, config);
}

TEST_F(LoadWeights, ReportsProgressToTheEnd) {
  const ModelConfig config = tiny_config();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  std::vector<std::pair<int64_t, int64_t>> reports;
  load_model(checkpoint, config, {.on_progress = [&](int64_t done, int64_t total) {
               reports.emplace_back(done, total);
             }});
  ASSERT_GT(reports.size(), 10u);
  for (size_t i = 1; i < reports.size(); ++i) EXPECT_GE(reports[i].first, reports[i - 1].first);
  EXPECT_EQ(reports.back().first, reports.back().second);
}

// Random weights have the variance that keeps activations in size, and depend on the seed alone.
TEST(RandomWeights, AreNearNormalAndFixedByTheSeed) {
  const ModelConfig config = tiny_config();
  const auto first = make_random_model(config, {.dtype = DType::f32}, 1);
  const auto again = make_random_model(config, {.dtype = DType::f32}, 1);
  const auto other = make_random_model(config, {.dtype = DType::f32}, 2);
  const std::string name = "model.layers.1.mlp.gate_up.weight";
  const TensorView& weight = weight_of(first, name);
  double sum = 0, squares = 0;
  int64_t num_equal = 0;
  const int64_t count = weight.num_elements();
  for (int64_t i = 0; i < count; ++i) {
    const double value = weight.as<float>()[i];
    EXPECT_EQ(value, weight_of(again, name).as<float>()[i]);
    num_equal += value == weight_of(other, name).as<float>()[i] ? 1 : 0;
    sum += value;
    squares += value * value;
  }
  const double n = static_cast<double>(count);
  // Five deviations of the mean, and of the mean square, of n normal values of variance 1 / 64.
  EXPECT_NEAR(sum / n, 0.0, 5.0 / 8.0 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0 / 64.0, 5.0 / 64.0 * std::sqrt(2.0 / n));
  EXPECT_LT(num_equal, count / 50);  // of 1021 values
  EXPECT_EQ(at(weight_of(first, "model.layers.0.post_attention_layernorm.weight"), 5, 0), 1.0f);
}

TEST(RandomWeights, RanksHoldPartsOfTheWhole) {
  const ModelConfig config = tiny_config();
  const auto whole = make_random_model(config, {.dtype = DType::f32}, 1);
  const auto part = make_random_model(config, {.dtype = DType::f32, .rank = 1, .num_ranks = 2}, 1);
  const std::string down = "model.layers.0.mlp.down_proj.weight";
  EXPECT_EQ(at(weight_of(part, down), 3, 5), at(weight_of(whole, down), 3, 48 + 5));
  // Row 3 of up, and row 48 + 3, behind 8 rows of gate for every 8 of up.
  const std::string gate_up = "model.layers.0.mlp.gate_up.weight";
  EXPECT_EQ(at(weight_of(part, gate_up), 8 + 3, 5), at(weight_of(whole, gate_up), 96 + 8 + 3, 5));
}

}  // namespace
}  // namespace tessera::testing
