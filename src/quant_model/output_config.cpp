// The quantization_config of compressed-tensors and of GPTQ.
// SPDX-License-Identifier: MIT
#include "quant_model/output_config.h"

#include <nlohmann/json.hpp>

#include "core/read_file.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

using Json = nlohmann::ordered_json;
constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr const char* kKey = "quantization_config";

Json weights_of(const ModelQuantOptions& options, const QuantFormat& format) {
  Json weights = {{"num_bits", format.codes == CodeFormat::int4 ? 4 : 8},
                  {"type", format.code_dtype() == DType::e4m3 ? "float" : "int"},
                  {"symmetric", !format.has_zero_points()},
                  {"strategy", "channel"},
                  {"group_size", nullptr},
                  {"block_structure", nullptr},
                  {"dynamic", false},
                  {"actorder", nullptr},
                  {"observer", "minmax"},
                  {"observer_kwargs", Json::object()}};
  if (format.codes == CodeFormat::fp8_block) {
    weights["strategy"] = "block";
    weights["block_structure"] = {kBlockSide, kBlockSide};
  } else if (format.codes == CodeFormat::int4 && format.group > 0) {
    weights["strategy"] = "group";
    weights["group_size"] = format.group;
  }
  if (options.method == Method::gptq && options.gptq.order != ActOrder::none) {
    weights["actorder"] = options.gptq.order == ActOrder::group ? "group" : "weight";
  }
  return weights;
}

Json inputs_of(const QuantFormat& format) {
  const bool is_block = format.codes == CodeFormat::fp8_block;
  return {{"num_bits", 8},
          {"type", format.code_dtype() == DType::e4m3 ? "float" : "int"},
          {"symmetric", true},
          {"strategy", is_block ? "group" : "token"},
          {"group_size", is_block ? Json(kBlockSide) : Json(nullptr)},
          {"block_structure", nullptr},
          {"dynamic", true},
          {"actorder", nullptr},
          {"observer", nullptr},
          {"observer_kwargs", Json::object()}};
}

std::string_view compression(const StoredForm& form) {
  if (form.format.code_dtype() == DType::e4m3) return "float-quantized";
  if (form.format.codes == CodeFormat::int8 && !form.packs_int8) return "int-quantized";
  return "pack-quantized";
}

Json compressed_tensors(const ModelQuantOptions& options, const StoredForm& form,
                        const std::vector<std::string>& ignored) {
  const Json inputs = options.quantizes_inputs ? inputs_of(form.format) : Json(nullptr);
  return {{"quant_method", "compressed-tensors"},
          {"format", compression(form)},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights_of(options, form.format)},
              {"input_activations", inputs},
              {"output_activations", nullptr},
              {"format", compression(form)}}}}},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr}};
}

Json gptq(const ModelQuantOptions& options, const StoredForm& form) {
  const bool has_zeros = form.format.has_zero_points();
  const bool has_groups = form.format.codes == CodeFormat::int4 && form.format.group > 0;
  return {{"quant_method", "gptq"},
          {"bits", form.format.codes == CodeFormat::int4 ? 4 : 8},
          {"group_size", has_groups ? form.format.group : int64_t{-1}},
          {"desc_act", options.method == Method::gptq && options.gptq.order == ActOrder::group},
          {"sym", !has_zeros},
          {"lm_head", false},
          {"damp_percent", options.gptq.damping},
          {"true_sequential", true},
          {"checkpoint_format", has_zeros ? "gptq_v2" : "gptq"}};
}

}  // namespace

std::string quantized_config(const std::string& original, const ModelQuantOptions& options,
                             const StoredForm& form, const std::vector<std::string>& ignored) {
  Json config = Json::parse(original);
  if (form.files == FileFormat::dense) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (config.contains(key)) config[key] = "float32";
    }
    return config.dump(2) + "\n";
  }
  config[kKey] = form.files == FileFormat::gptq ? gptq(options, form)
                                                : compressed_tensors(options, form, ignored);
  return config.dump(2) + "\n";
}

FolderForm read_form(const std::filesystem::path& folder, DType dtype) {
  const std::filesystem::path path = folder / "config.json";
  const Json config = Json::parse(read_file(path, kMaxConfigBytes));
  FolderForm found;
  if (!config.contains(kKey)) return found;
  const Json& quantization = config.at(kKey);
  found.is_quantized = true;
  QuantFormat& format = found.form.format;
  try {
    if (quantization.at("quant_method") == "gptq") {
      found.form.files = FileFormat::gptq;
      format.codes = quantization.at("bits") == 4 ? CodeFormat::int4 : CodeFormat::int8;
      format.is_symmetric = quantization.at("sym").get<bool>();
      format.group = std::max<int64_t>(0, quantization.at("group_size").get<int64_t>());
      format.scale_dtype = DType::f16;
      return found;
    }
    const Json& group = quantization.at("config_groups").at("group_0");
    const Json& weights = group.at("weights");
    format.scale_dtype = dtype;
    format.is_symmetric = weights.at("symmetric").get<bool>();
    format.group = weights.at("group_size").is_null() ? 0 : weights.at("group_size").get<int64_t>();
    const bool is_float = weights.at("type") == "float";
    if (is_float) {
      format.codes = weights.at("strategy") == "block" ? CodeFormat::fp8_block : CodeFormat::fp8;
    } else {
      format.codes = weights.at("num_bits") == 4 ? CodeFormat::int4 : CodeFormat::int8;
    }
    found.form.packs_int8 = quantization.at("format") == "pack-quantized";
    found.quantizes_inputs = !group.at("input_activations").is_null();
  } catch (const nlohmann::json::exception&) {
    fail(concat(shown_path(path.native()),
                ": quantization_config is not one that quantize_model "
                "writes"));
  }
  return found;
}

}  // namespace tessera::quant
