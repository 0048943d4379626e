// Every quantised format of folders, and checkpoints written twice: as codes, and as the values
// that the codes stand for.
// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/model/formats/quantized_files.h"
#include "tests/model/formats/small_llama.h"

namespace tessera::testing {

using Write = std::function<void(std::vector<RawTensor>&, const std::string&, const Quantized&,
                                 const QuantizedKind&)>;

struct Format {
  std::string name;
  std::string config;  // quantization_config
  QuantizedKind kind;
  Write write;
};

inline Write gptq(bool is_v2) {
  return [=](auto& file, const auto& layer, const auto& w, const auto&) {
    add_gptq(file, layer, w, is_v2);
  };
}
inline Write bytes(const char* suffix) {
  return [=](auto& file, const auto& layer, const auto& w, const auto& kind) {
    add_bytes(file, layer, w, kind, suffix);
  };
}

inline std::string scheme(const std::string& weights, const std::string& format) {
  return R"({"quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"],
             "weights": {)" +
         weights + "}}}}";
}

inline std::vector<Format> formats() {
  const Write awq = [](auto& file, const auto& layer, const auto& w, const auto&) {
    add_awq(file, layer, w);
  };
  const Write packed = [](auto& file, const auto& layer, const auto& w, const auto& kind) {
    add_packed(file, layer, w, kind);
  };
  const Write mxfp4 = [](auto& file, const auto& layer, const auto& w, const auto&) {
    add_mxfp4(file, layer, w);
  };
  const std::string g4 = R"({"quant_method": "gptq", "bits": 4, "group_size": 32, )";
  return {
      {"GptqSymmetric",
       g4 + R"("sym": true, "desc_act": false})",
       {.group = 32, .is_symmetric = true},
       gptq(false)},
      {"GptqZeroPoints", g4 + R"("sym": false, "desc_act": false})", {.group = 32}, gptq(false)},
      {"GptqActOrder",
       g4 + R"("sym": false, "desc_act": true})",
       {.group = 32, .is_sorted = true},
       gptq(false)},
      {"GptqVersion2",
       g4 + R"("sym": false, "checkpoint_format": "gptq_v2"})",
       {.group = 32},
       gptq(true)},
      {"Gptq8Bits",
       R"({"quant_method": "gptq", "bits": 8, "group_size": 64, "sym": true, "desc_act": true})",
       {.bits = 8, .group = 64, .is_symmetric = true, .is_sorted = true},
       gptq(false)},
      {"Gptq8BitsZeroPoints",
       R"({"quant_method": "gptq", "bits": 8, "group_size": -1,
           "sym": false})",
       {.bits = 8},
       gptq(false)},
      {"Awq", R"({"quant_method": "awq", "bits": 4, "group_size": 32})", {.group = 32}, awq},
      {"W4A16",
       scheme(R"("num_bits": 4, "strategy": "group", "group_size": 32)", "pack-quantized"),
       {.group = 32, .is_symmetric = true},
       packed},
      {"W4A16Asymmetric",
       scheme(R"("num_bits": 4, "strategy": "group", "group_size": 32, "symmetric": false,
                 "actorder": "group")",
              "pack-quantized"),
       {.group = 32, .is_sorted = true},
       packed},
      {"W8A16",
       scheme(R"("num_bits": 8, "strategy": "channel")", "pack-quantized"),
       {.bits = 8, .is_symmetric = true},
       packed},
      {"Int8",
       scheme(R"("num_bits": 8, "strategy": "channel")", "int-quantized"),
       {.bits = 8, .is_symmetric = true},
       bytes("weight_scale")},
      {"Mxfp4",
       scheme(R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 32)",
              "mxfp4-pack-quantized"),
       {.group = 32, .table = {0, .5f, 1, 1.5f, 2, 3, 4, 6, 0, -.5f, -1, -1.5f, -2, -3, -4, -6}},
       mxfp4},
      {"Fp8Tensor",
       scheme(R"("num_bits": 8, "type": "float", "strategy": "tensor")", "float-quantized"),
       {.bits = 8, .is_symmetric = true, .is_fp8 = true, .rows_per_scale = 0},
       bytes("weight_scale")},
      {"Fp8Channel",
       scheme(R"("num_bits": 8, "type": "float", "strategy": "channel")", "float-quantized"),
       {.bits = 8, .is_symmetric = true, .is_fp8 = true},
       bytes("weight_scale")},
      {"Fp8Block",
       R"({"quant_method": "fp8", "weight_block_size": [128, 128]})",
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
inline void write_twins(Twins& twins, const Format& format, const std::string& keep = "",
                        const std::function<void(std::vector<RawTensor>&)>& change = {}) {
  const model::ModelConfig config = model::parse_config(config_json(""), "test");
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

inline Format format_named(const std::string& name) {
  for (const Format& format : formats()) {
    if (format.name == name) return format;
  }
  return {};
}

}  // namespace tessera::testing
