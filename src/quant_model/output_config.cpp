// The quantization_config of compressed-tensors and of GPTQ.
// SPDX-License-Identifier: MIT
#include "quant_model/output_config.h"

#include <nlohmann/json.hpp>

namespace tessera::quant {
namespace {

using Json = nlohmann::ordered_json;
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

Json inputs_of(const QuantFormat& format, bool is_static) {
  const bool is_block = format.codes == CodeFormat::fp8_block;
  return {{"num_bits", 8},
          {"type", format.code_dtype() == DType::e4m3 ? "float" : "int"},
          {"symmetric", true},
          {"strategy", is_static  ? "tensor"
                       : is_block ? "group"
                                  : "token"},
          {"group_size", is_block ? Json(kBlockSide) : Json(nullptr)},
          {"block_structure", nullptr},
          {"dynamic", !is_static},
          {"actorder", nullptr},
          {"observer", is_static ? Json("minmax") : Json(nullptr)},
          {"observer_kwargs", Json::object()}};
}

// Keys and values as e4m3 with one scale for each layer's keys, and one for its values.
Json kv_scheme() {
  return {{"num_bits", 8},         {"type", "float"},
          {"symmetric", true},     {"strategy", "tensor"},
          {"group_size", nullptr}, {"block_structure", nullptr},
          {"dynamic", false},      {"actorder", nullptr},
          {"observer", "minmax"},  {"observer_kwargs", Json::object()}};
}

std::string_view compression(const StoredForm& form) {
  if (form.format.code_dtype() == DType::e4m3) return "float-quantized";
  if (form.format.codes == CodeFormat::int8 && !form.packs_int8) return "int-quantized";
  return "pack-quantized";
}

Json compressed_tensors(const ModelQuantOptions& options, const StoredForm& form,
                        const std::vector<std::string>& ignored) {
  const Json inputs =
      options.quantizes_inputs ? inputs_of(form.format, options.has_static_inputs) : Json(nullptr);
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
          {"kv_cache_scheme", options.calibrates_kv ? kv_scheme() : Json(nullptr)},
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

}  // namespace tessera::quant
