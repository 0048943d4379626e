// Checkpoints in every quantised format: each weight is bit for bit what its codes say, and logits
// are those of the same weights stored as values.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "core/element.h"
#include "model/formats/stored_format.h"
#include "model/model.h"
#include "tests/core/message_of.h"
#include "tests/model/formats/quantized_files.h"
#include "tests/model/formats/small_llama.h"
#include "tests/model/runner.h"
#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LoadOptions;
using model::ModelConfig;
using model::WeightFormat;

using Write = std::function<void(std::vector<RawTensor>&, const std::string&, const Quantized&,
                                 const QuantizedKind&)>;

struct Format {
  std::string name;
  std::string config;  // quantization_config
  QuantizedKind kind;
  Write write;
};

Write gptq(bool is_v2) {
  return [=](auto& file, const auto& layer, const auto& w, const auto&) {
    add_gptq(file, layer, w, is_v2);
  };
}
Write bytes(const char* suffix) {
  return [=](auto& file, const auto& layer, const auto& w, const auto& kind) {
    add_bytes(file, layer, w, kind, suffix);
  };
}

std::string scheme(const std::string& weights, const std::string& format) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
             "weights": {)" +
         weights + "}}}}";
}

std::vector<Format> formats() {
  const Write awq = [](auto& file, const auto& layer, const auto& w, const auto&) {
    add_awq(file, layer, w);
  };
  const Write packed = [](auto& file, const auto& layer, const auto& w, const auto& kind) {
    add_packed(file, layer, w, kind);
  };
  const std::string g4 = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, )";
  return {
      {"GptqSymmetric", g4 + R"("sym": true, "desc_act": false})",
       {.group = 32, .is_symmetric = true}, gptq(false)},
      {"GptqZeroPoints", g4 + R"("sym": false, "desc_act": false})", {.group = 32}, gptq(false)},
      {"GptqActOrder", g4 + R"("sym": false, "desc_act": true})",
       {.group = 32, .is_sorted = true}, gptq(false)},
      {"GptqVersion2", g4 + R"("sym": false, "checkpoint_format": "gptq_v2"})", {.group = 32},
       gptq(true)},
      {"Gptq8Bits",
       R"({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": true, "desc_act": true})",
       {.bits = 8, .group = 64, .is_symmetric = true, .is_sorted = true}, gptq(false)},
      {"Gptq8BitsZeroPoints", R"({"quant_method": "gptq", "bits": 8, "group_size": -1,
           "sym": false})", {.bits = 8}, gptq(false)},
      {"Awq", R"({"quant_method": "awq", "bits": 4, "group_size": 32})", {.group = 32}, awq},
      {"W4A16", scheme(R"("num_bits": 4, "strategy": "group", "group_size": 32)", "pack-quantized"),
       {.group = 32, .is_symmetric = true}, packed},
      {"W4A16Asymmetric",
       scheme(R"("num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false,
                 "actorder": "group")", "pack-quantized"),
       {.group = 32, .is_sorted = true}, packed},
      {"W8A16", scheme(R"("num_bits": 8, "strategy": "channel")", "pack-quantized"),
       {.bits = 8, .is_symmetric = true}, packed},
      {"Int8", scheme(R"("num_bits": 8, "strategy": "channel")", "int-quantized"),
       {.bits = 8, .is_symmetric = true}, bytes("weight_scale")},
      {"Fp8Tensor", scheme(R"("num_bits": 8, "type": "float", "strategy": "tensor")",
                           "float-quantized"),
       {.bits = 8, .is_symmetric = true, .is_fp8 = true, .rows_per_scale = 0},
       bytes("weight_scale")},
      {"Fp8Channel", scheme(R"("num_bits": 8, "type": "float", "strategy": "channel")",
                            "float-quantized"),
       {.bits = 8, .is_symmetric = true, .is_fp8 = true}, bytes("weight_scale")},
      {"Fp8Block", R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
       {.bits = 8, .group = 128, .is_symmetric = true, .is_fp8 = true, .rows_per_scale = 128},
       bytes("weight_scale_inv")},
  };
}

// A checkpoint twice: quantised, and with the same weights as values.
struct Twins {
  TemporaryFolder quantised, dense;
  std::map<std::string, Quantized> weights;
};

// With `keep`, layers whose name has it are stored as values in both.
void write_twins(Twins& twins, const Format& format, const std::string& keep = "",
                 const std::function<void(std::vector<RawTensor>&)>& change = {}) {
  const ModelConfig config = model::parse_config(config_json(""), "test");
  const auto dry = make_dry_model(config, {});
  std::vector<RawTensor> codes, values;
  uint32_t seed = 1;
  for (const model::TensorSpec& spec : dry->weights().specs()) {
    ++seed;
    const bool is_kept = !keep.empty() && spec.name.find(keep) != std::string::npos;
    if (!is_linear(spec.name) || is_kept) {
      std::vector<int64_t> shape = {spec.num_rows};
      if (!spec.is_vector) shape.push_back(spec.num_cols);
      codes.push_back(values_of(spec.name, shape, seed));
      values.push_back(codes.back());
      continue;
    }
    const std::string layer = spec.name.substr(0, spec.name.size() - 7);
    // Layers with the same inputs sort their columns alike.
    const Quantized w = random_weight(spec.num_rows, spec.num_cols, format.kind, seed,
                                      static_cast<uint32_t>(spec.num_cols));
    format.write(codes, layer, w, format.kind);
    std::vector<float> floats;
    for (int64_t i = 0; i < w.n * w.k; ++i) floats.push_back(w.value(i / w.k, i % w.k));
    values.push_back(raw(spec.name, "F32", {w.n, w.k}, floats));
    twins.weights[layer] = w;
  }
  if (change) change(codes);
  twins.quantised.write("model.safetensors", raw_file(codes));
  twins.quantised.write("config.json", config_json(format.config));
  twins.dense.write("model.safetensors", raw_file(values));
  twins.dense.write("config.json", config_json(""));
}

// Element (row, col) of a loaded weight; columns are those of the inputs.
float element(const model::LinearWeight& weight, int64_t row, int64_t col) {
  int64_t at = col;
  if (weight.order.rank > 0) {
    const auto* order = weight.order.as<int32_t>();
    at = std::find(order, order + weight.order.size(0), col) - order;
  }
  const int64_t index = row * weight.values.size(1) + at;
  const bool has_zero = weight.zero_point.rank > 0;
  float code = 0;
  switch (weight.values.dtype) {
    case DType::f32: return weight.values.as<float>()[index];
    case DType::i4: {
      const int8_t nibble = read_element<I4x2>(weight.values.data, index);
      code = static_cast<float>(has_zero ? nibble & 15 : nibble);
      break;
    }
    case DType::i8: code = static_cast<float>(weight.values.as<int8_t>()[index]); break;
    case DType::u8: code = static_cast<float>(weight.values.as<uint8_t>()[index]); break;
    default: code = to_float(weight.values.as<E4m3>()[index]); break;
  }
  const int64_t groups = weight.scale.rank == 1 ? 1 : weight.scale.size(1);
  const int64_t g = weight.group > 0 ? at / weight.group : 0;
  const int64_t scale = row / weight.rows_per_scale * groups + g;
  const float zero = has_zero ? static_cast<float>(weight.zero_point.as<uint8_t>()[scale]) : 0.0f;
  return (code - zero) * weight.scale.as<float>()[scale];
}

// The layers that a weight of the model is made of, and where their rows are in it.
void expect_exact(const model::Model& loaded, const Twins& twins) {
  for (const auto& [layer, w] : twins.weights) {
    const size_t dot = layer.rfind('.');
    const std::string scope = layer.substr(0, dot), part = layer.substr(dot + 1);
    std::string name = layer;
    int64_t first = 0;
    if (part == "q_proj" || part == "k_proj" || part == "v_proj") {
      name = scope + ".qkv";
      first = part == "q_proj" ? 0 : part == "k_proj" ? 128 : 192;
    }
    const bool is_gate = part == "gate_proj", is_pair = is_gate || part == "up_proj";
    if (is_pair) name = scope + ".gate_up";
    const model::LinearWeight& weight = loaded.weights().find(name + ".weight");
    for (int64_t row = 0; row < w.n; ++row) {
      const int64_t at = is_pair ? row / 8 * 16 + (is_gate ? 0 : 8) + row % 8 : first + row;
      for (int64_t col = 0; col < w.k; ++col) {
        ASSERT_EQ(element(weight, at, col), w.value(row, col))
            << layer << " [" << row << ", " << col << "]";
      }
    }
  }
}

std::vector<float> logits_of(std::unique_ptr<model::Model> loaded) {
  dist::LocalCommunicator local;
  Runner runner(std::move(loaded), local);
  Sequence sequence;
  std::vector<int32_t> tokens;
  for (int i = 0; i < 19; ++i) tokens.push_back(i * 37 % 128);
  const std::vector<Chunk> chunks = {{&sequence, tokens, true}};
  const TensorView logits = runner.step(chunks);
  return {logits.as<float>(), logits.as<float>() + logits.num_elements()};
}

// Each product is within k * 2^-22 of the sum of magnitudes (gemm.h), on either side. With k <= 256,
// fewer than 16 products in a row, and sums at most 32 times their result, logits differ by less
// than 2 * 16 * 32 * 256 * 2^-22 = 1/16 of the largest; a scale or a column out of place changes
// them by about as much as they are.
void expect_close(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  float largest = 0, worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(want[i]));
    worst = std::max(worst, std::fabs(got[i] - want[i]));
  }
  EXPECT_LE(worst, largest / 16) << "largest " << largest;
  EXPECT_GT(largest, 0.1f);
}

class EveryFormat : public ::testing::TestWithParam<Format> {};

TEST_P(EveryFormat, KeepsItsCodesAndGivesTheLogitsOfItsValues) {
  Twins twins;
  write_twins(twins, GetParam());
  auto stored = load(twins.quantised, {.dtype = DType::f32});
  expect_exact(*stored, twins);
  // Only codes: a quarter of f32, at most, and scales.
  const auto dense = load(twins.dense, {.dtype = DType::f32});
  EXPECT_LT(stored->weight_bytes(), dense->weight_bytes() / 2);
  for (const model::KeptWeights& kept : stored->weights().kept()) {
    EXPECT_TRUE(kept.as == "f32" || kept.as.find("dequantised") == std::string::npos) << kept.as;
  }
  const std::vector<float> want = logits_of(load(twins.dense, {.dtype = DType::f32}));
  expect_close(logits_of(std::move(stored)), want);
  // As values they are the same bits, and so are the logits.
  auto plain = load(twins.quantised, {.dtype = DType::f32, .format = WeightFormat::plain});
  expect_exact(*plain, twins);
  EXPECT_EQ(logits_of(std::move(plain)), want);
}

TEST_P(EveryFormat, NamesATensorThatIsMissingOrOfAnotherShape) {
  const Format& format = GetParam();
  Twins reference;
  std::vector<RawTensor> all;
  write_twins(reference, format, "", [&](auto& tensors) { all = tensors; });
  for (const RawTensor& tensor : all) {
    if (tensor.name.find("layers.1.mlp.down_proj.") == std::string::npos) continue;
    const bool is_optional = tensor.name.ends_with(".g_idx") && !format.kind.is_sorted;
    for (const bool is_missing : {true, false}) {
      if (is_missing && is_optional) continue;
      Twins twins;
      write_twins(twins, format, "", [&](std::vector<RawTensor>& tensors) {
        const auto found = std::ranges::find(tensors, tensor.name, &RawTensor::name);
        if (is_missing) {
          tensors.erase(found);
        } else {
          found->shape = {1, static_cast<int64_t>(found->bytes.size()) /
                                 (tensor.type == "I64"                             ? 8
                                  : tensor.type == "I32" || tensor.type == "F32"   ? 4
                                  : tensor.type == "F16"                           ? 2
                                                                                   : 1), 1};
        }
      });
      const std::string message = message_of([&] { load(twins.quantised, {}); });
      EXPECT_NE(message.find("'" + tensor.name + "'"), std::string::npos) << message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Quantised, EveryFormat, ::testing::ValuesIn(formats()),
                         [](const auto& info) { return info.param.name; });

Format format_named(const std::string& name) {
  for (const Format& format : formats()) {
    if (format.name == name) return format;
  }
  return {};
}

// A layer of a joined product that is stored as values makes the whole product values.
TEST(QuantizedCheckpoint, MayHaveLayersThatAreValues) {
  Format format = format_named("Awq");
  format.config = R"({"quant_method": "awq", "bits": 4, "group_size": 32,
      "modules_to_not_convert": ["v_proj"]})";
  Twins twins;
  write_twins(twins, format, "v_proj");
  auto loaded = load(twins.quantised, {.dtype = DType::f32});
  EXPECT_EQ(loaded->weights().find("model.layers.0.self_attn.qkv.weight").values.dtype, DType::f32);
  EXPECT_EQ(loaded->weights().find("model.layers.0.mlp.down_proj.weight").values.dtype, DType::i4);
  expect_exact(*loaded, twins);
  EXPECT_NE(loaded->weights().kept()[0].as.find("dequantised from awq, 4 bits"), std::string::npos);
  expect_close(logits_of(std::move(loaded)),
               logits_of(load(twins.dense, {.dtype = DType::f32})));
}

TEST(QuantizedCheckpoint, MayBeQuantisedAnew) {
  Twins twins;
  write_twins(twins, format_named("Fp8Channel"));
  const auto loaded = load(twins.quantised, {.dtype = DType::bf16, .format = WeightFormat::int8});
  EXPECT_EQ(loaded->weights().find("model.layers.0.self_attn.qkv.weight").values.dtype, DType::i8);
}

std::string refusal(const std::string& format, const LoadOptions& options,
                    const std::function<void(std::vector<RawTensor>&)>& change) {
  Twins twins;
  write_twins(twins, format_named(format), "", change);
  return message_of([&] { load(twins.quantised, options); });
}

RawTensor& tensor_of(std::vector<RawTensor>& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &RawTensor::name);
}

TEST(QuantizedCheckpoint, RefusesPartsThatSortTheirColumnsDifferently) {
  const auto swap_two = [](std::vector<RawTensor>& tensors) {
    std::string& groups = tensor_of(tensors, "model.layers.0.self_attn.k_proj.g_idx").bytes;
    size_t other = 4;
    while (groups[other] == groups[0]) other += 4;
    std::swap(groups[0], groups[other]);
  };
  const std::string message = refusal("GptqActOrder", {}, swap_two);
  EXPECT_NE(message.find("self_attn.k_proj.weight' have different columns"), std::string::npos)
      << message;
  EXPECT_EQ(refusal("GptqActOrder", {.format = WeightFormat::plain}, swap_two), "");
}

TEST(QuantizedCheckpoint, RefusesGroupsThatDoNotExistOrAreSortedWithoutSayingSo) {
  const auto set_group = [](char value) {
    return [=](std::vector<RawTensor>& tensors) {
      tensor_of(tensors, "model.layers.0.mlp.down_proj.g_idx").bytes[0] = value;
    };
  };
  EXPECT_NE(refusal("GptqActOrder", {}, set_group(100)).find("holds 100 at [0]; the layer has 8"),
            std::string::npos);
  EXPECT_NE(refusal("GptqZeroPoints", {}, set_group(1)).find("set desc_act in config.json"),
            std::string::npos);
}

// A stored 15 means 16 to some readers and 0 to others.
TEST(QuantizedCheckpoint, RefusesZeroPointsThatReadersUnderstandDifferently) {
  const std::string message = refusal("GptqZeroPoints", {}, [](std::vector<RawTensor>& tensors) {
    tensor_of(tensors, "model.layers.1.mlp.up_proj.qzeros").bytes[0] |= 0x0f;
  });
  EXPECT_NE(message.find("up_proj.qzeros' holds 15, a zero point of 16 or of 0"),
            std::string::npos)
      << message;
}

TEST(QuantizedCheckpoint, RefusesCodesThatAreNotSymmetricAlthoughConfigSaysSo) {
  const std::string message = refusal("GptqSymmetric", {}, [](std::vector<RawTensor>& tensors) {
    std::string& zeros = tensor_of(tensors, "model.layers.1.mlp.up_proj.qzeros").bytes;
    std::fill(zeros.begin(), zeros.end(), '\0');  // a zero point of 1 everywhere
  });
  EXPECT_NE(message.find("up_proj.weight' has code"), std::string::npos) << message;
  EXPECT_NE(message.find("must not say that it is symmetric"), std::string::npos) << message;
}

TEST(QuantizedCheckpoint, IgnoresScalesOfActivationsAndBiasesOfZeros) {
  const auto add = [](float bias) {
    return [=](std::vector<RawTensor>& tensors) {
      tensors.push_back(raw("model.layers.0.self_attn.k_proj.input_scale", "F32", {1},
                            std::vector<float>{2}));
      tensors.push_back(raw("model.layers.0.self_attn.k_scale", "F32", {1}, std::vector<float>{2}));
      tensors.push_back(raw("model.layers.0.self_attn.q_proj.bias", "F32", {2},
                            std::vector<float>{0, bias}));
    };
  };
  EXPECT_EQ(refusal("W4A16", {}, add(0)), "");
  EXPECT_NE(refusal("W4A16", {}, add(1)).find("q_proj.bias' [2] has no place"), std::string::npos);
}

TEST(QuantizedCheckpoint, FindsScalesThatAreNotFiniteWhenAsked) {
  const auto spoil = [](std::vector<RawTensor>& tensors) {
    // Row 3, group 1 of 4, as f16 infinity.
    std::string& scales = tensor_of(tensors, "model.layers.0.mlp.gate_proj.weight_scale").bytes;
    scales[2 * (3 * 4 + 1)] = '\x00', scales[2 * (3 * 4 + 1) + 1] = '\x7c';
  };
  EXPECT_EQ(refusal("W4A16", {}, spoil), "");
  const std::string message = refusal("W4A16", {.check_values = true}, spoil);
  EXPECT_NE(message.find("gate_proj.weight' holds"), std::string::npos) << message;
  EXPECT_NE(message.find("at [3, 32]"), std::string::npos) << message;
}

TEST(QuantizedCheckpoint, RanksReadTheirShare) {
  Twins twins;
  write_twins(twins, format_named("W4A16"));
  const auto whole = load(twins.quantised, {.dtype = DType::f32});
  const std::string down = "model.layers.1.mlp.down_proj";
  const ModelConfig config = model::load_config(twins.quantised.path());
  ModelConfig shared = config;
  for (const int rank : {0, 1}) {
    // One KV head cannot be shared, so this looks at the weights that can.
    model::Weights dry({.dtype = DType::f32, .rank = rank, .num_ranks = 2,
                        .formats = config.formats});
    const auto names = make_dry_model(config, {})->weights().specs();
    const Checkpoint checkpoint = Checkpoint::open(twins.quantised.path());
    const auto source = make_stored_source(checkpoint, config, names);
    model::Slice slice{.spec = {.name = down + ".weight", .num_rows = 128, .num_cols = 256},
                       .num_rows = 128,
                       .col = 128 * rank,
                       .num_cols = 128};
    dry.linear("down", {slice});
    model::Weights part(dry.options(), *source, dry);
    const model::LinearWeight weight = part.linear("down", {slice});
    EXPECT_EQ(weight.values.dtype, DType::i4);
    const Quantized& w = twins.weights.at(down);
    for (int64_t row = 0; row < 128; ++row) {
      for (int64_t col = 0; col < 128; ++col) {
        ASSERT_EQ(element(weight, row, col), w.value(row, 128 * rank + col));
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
