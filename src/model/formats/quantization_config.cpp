// The quantization_config of config.json: GPTQ, AWQ, compressed-tensors, fp8 and bitsandbytes.
// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include <string>

#include "core/text.h"
#include "model/bounded_json.h"
#include "model/config_fields.h"
#include "model/formats/stored_format.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

constexpr int64_t kMaxGroup = 1 << 20;
constexpr int64_t kMxfp4Group = 32;

// The first of several spellings that is there.
std::string_view spelling(const Fields& fields, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (fields.has(key)) return key;
  }
  return *keys.begin();
}

// -1 stands for one group: 0 here.
int64_t read_group(const Fields& fields, std::string_view key) {
  const int64_t group = fields.whole(key, -1, kMaxGroup);
  if (group == 0 || (group > 1 && group % 8 != 0) || group == 1) {
    fields.refuse(key, "-1 for one group, or a multiple of 8");
  }
  return group < 0 ? 0 : group;
}

int read_bits(const Fields& fields, std::string_view key) {
  const int64_t bits = fields.whole(key, 1, 64);
  if (bits != 4 && bits != 8) fields.refuse(key, "4 or 8");
  return static_cast<int>(bits);
}

void read_kept(const Fields& fields, std::string_view key, StoredFormats& formats) {
  for (const std::string& text : fields.texts(key)) {
    formats.kept.emplace_back(text, concat(fields.prefix(), key, ": "));
  }
}

void expect_text(const Fields& fields, std::string_view key, std::string_view wanted,
                 std::string_view why) {
  const auto text = fields.text_or_none(key);
  if (text && *text != wanted) fields.refuse(key, why);
}

void read_gptq(const Fields& fields, StoredFormats& formats) {
  StoredFormat format{.storage = Storage::gptq, .bits = read_bits(fields, "bits")};
  format.group = read_group(fields, "group_size");
  format.has_order = fields.flag("desc_act", false) && format.group > 0;
  format.has_zero_points = !fields.flag("sym", true);
  const std::string layout = fields.text_or_none("checkpoint_format").value_or("gptq");
  if (layout == "gptq_v2") {
    format.storage = Storage::gptq_v2;
  } else if (layout != "gptq") {
    fields.refuse("checkpoint_format", "gptq or gptq_v2");
  }
  if (const auto dynamic = fields.object_or_none("dynamic");
      dynamic && !fields.find("dynamic")->empty()) {
    fields.refuse("dynamic", "empty: one setting for all layers");
  }
  read_kept(fields, "modules_to_not_convert", formats);
  if (!fields.flag("lm_head", false)) formats.kept.emplace_back("lm_head", fields.prefix());
  formats.rules.push_back({{}, format});
}

void read_awq(const Fields& fields, StoredFormats& formats) {
  StoredFormat format{.storage = Storage::awq,
                      .bits = read_bits(fields, spelling(fields, {"bits", "w_bit"})),
                      .has_zero_points = true};
  if (format.bits != 4) fields.refuse("bits", "4, as AWQ has it");
  format.group = read_group(fields, spelling(fields, {"group_size", "q_group_size"}));
  // Without the flag the file still has qzeros, which all hold 8.
  expect_text(fields, "version", "gemm", "gemm; gemv, gemv_fast and marlin lie differently");
  read_kept(fields, "modules_to_not_convert", formats);
  formats.kept.emplace_back("lm_head", fields.prefix());
  formats.rules.push_back({{}, format});
}

// weight_block_size or block_structure: two sizes.
void read_block(const Fields& fields, std::string_view key, StoredFormat& format) {
  const json& value = *fields.find(key);
  const bool is_pair = value.is_array() && value.size() == 2 && value[0].is_number_unsigned() &&
                       value[1].is_number_unsigned();
  const auto is_size = [](const json& size) {
    const auto number = size.get<uint64_t>();
    return number >= 2 && number <= kMaxGroup;
  };
  if (!is_pair || !is_size(value[0]) || !is_size(value[1])) {
    fields.refuse(key, value, "two sizes, such as [128, 128]");
  }
  format.rows_per_scale = value[0].get<int64_t>();
  format.group = value[1].get<int64_t>();
}

void read_fp8(const Fields& fields, StoredFormats& formats) {
  expect_text(fields, "fmt", "e4m3", "e4m3");
  StoredFormat format{.storage = Storage::bytes,
                      .codes = DType::e4m3,
                      .rows_per_scale = 0,
                      .scale_suffix = "weight_scale"};
  if (fields.has("weight_block_size")) {
    read_block(fields, "weight_block_size", format);
    format.scale_suffix = "weight_scale_inv";
  }
  const std::string scheme = fields.text_or_none("activation_scheme").value_or("dynamic");
  if (scheme != "dynamic" && scheme != "static") {
    fields.refuse("activation_scheme", "dynamic or static");
  }
  format.takes_codes = true;
  format.has_input_scale = scheme == "static" && format.rows_per_scale == 0;
  read_kept(fields, "modules_to_not_convert", formats);
  read_kept(fields, "ignored_layers", formats);
  formats.kept.emplace_back("lm_head", fields.prefix());
  formats.rules.push_back({{}, format});
}

void read_bitsandbytes(const Fields& fields, StoredFormats& formats) {
  if (!fields.flag("load_in_4bit", false)) {
    fail(concat(fields.prefix(),
                "load_in_4bit is not set; of bitsandbytes only 4-bit weights "
                "are supported"));
  }
  expect_text(fields, "bnb_4bit_quant_type", "nf4", "nf4");
  if (!fields.has("bnb_4bit_quant_type")) fields.refuse_missing("bnb_4bit_quant_type");
  read_kept(fields, "llm_int8_skip_modules", formats);
  formats.kept.emplace_back("lm_head", fields.prefix());
  formats.rules.push_back({{}, {.storage = Storage::nf4, .group = 64}});
}

// One scheme of compressed-tensors: the weights of a config group.
class CompressedGroup {
 public:
  CompressedGroup(const Fields& group, std::string_view format) : group_(group), format_(format) {}

  StoredFormat read() const {
    const auto weights = group_.object_or_none("weights");
    if (!weights) group_.refuse_missing("weights");
    const std::string type = weights->text_or_none("type").value_or("int");
    const bool is_float = type == "float";
    if (!is_float && type != "int") {
      weights->refuse("type", "int or float");
    }
    StoredFormat stored;
    stored.bits = read_bits(*weights, "num_bits");
    if (is_float && stored.bits != (is_mxfp4() ? 4 : 8)) {
      weights->refuse("num_bits", "8 for floats, or 4 in the format mxfp4-pack-quantized");
    }
    stored.has_zero_points = !weights->flag("symmetric", true);
    if (is_float && stored.has_zero_points) {
      weights->refuse("symmetric", "true for floats");
    }
    read_layout(is_float, stored);
    read_strategy(*weights, stored);
    read_order(*weights, stored);
    return stored;
  }

 private:
  std::string format() const {
    return group_.text_or_none("format").value_or(std::string(format_));
  }
  bool is_mxfp4() const { return format() == "mxfp4-pack-quantized"; }

  void read_layout(bool is_float, StoredFormat& stored) const {
    const std::string format = this->format();
    if (is_mxfp4() && is_float) {
      stored.storage = Storage::mxfp4;
      stored.bits = 0;
      return;
    }
    if (format == "pack-quantized" && !is_float) {
      stored.storage = Storage::packed;
      return;
    }
    const bool is_bytes =
        format == "naive-quantized" || format == (is_float ? "float-quantized" : "int-quantized");
    if (!is_bytes || stored.bits != 8) {
      fail(concat(group_.prefix(), "format is '", shown(format), "' for ", stored.bits, "-bit ",
                  is_float ? "floats" : "integers",
                  "; it must be pack-quantized, int-quantized (8 bits), float-quantized (8 "
                  "bits) or mxfp4-pack-quantized (floats of 4 bits)"));
    }
    stored.storage = Storage::bytes;
    stored.codes = is_float ? DType::e4m3 : DType::i8;
    stored.scale_suffix = "weight_scale";
    stored.bits = 0;
  }

  static void read_strategy(const Fields& weights, StoredFormat& stored) {
    const std::string strategy = weights.text_or_none("strategy").value_or("tensor");
    if (stored.storage == Storage::mxfp4) {
      if (strategy != "group") {
        weights.refuse("strategy", "group, as MXFP4 has it");
      }
      stored.group = read_group(weights, "group_size");
      if (stored.group != kMxfp4Group) {
        weights.refuse("group_size", "32, as MXFP4 has it");
      }
      return;
    }
    if (strategy == "channel") return;
    if (strategy == "group") {
      stored.group = read_group(weights, "group_size");
    } else if (strategy == "tensor" && stored.storage == Storage::bytes) {
      stored.rows_per_scale = 0;
    } else if (strategy == "block" && stored.storage == Storage::bytes) {
      if (!weights.has("block_structure")) weights.refuse_missing("block_structure");
      read_block(weights, "block_structure", stored);
    } else {
      weights.refuse("strategy", "channel or group; for a byte each also tensor or block");
    }
  }

  static void read_order(const Fields& weights, StoredFormat& stored) {
    const json* order = weights.find("actorder");
    if (order == nullptr || (order->is_boolean() && !order->get<bool>())) return;
    const bool is_group =
        (order->is_string() && order->get<std::string>() == "group") || order->is_boolean();
    if (is_group) {
      stored.has_order = stored.group > 0;
    } else if (!order->is_string() ||
               (order->get<std::string>() != "weight" && order->get<std::string>() != "static")) {
      weights.refuse("actorder", *order, "group, weight or static");
    }
  }

  const Fields& group_;
  std::string_view format_;
};

// What a group's input_activations ask for. A product takes codes of the weight's type on both
// sides; for anything else it takes values, and a note says so.
void read_inputs(const Fields& group, StoredFormat& stored, StoredFormats& formats) {
  const auto inputs = group.object_or_none("input_activations");
  if (!inputs) return;
  const bool is_float = inputs->text_or_none("type").value_or("int") == "float";
  const int64_t bits = inputs->whole_or_none("num_bits", 1, 64).value_or(8);
  stored.takes_codes = stored.storage == Storage::bytes && bits == 8 && !stored.has_zero_points &&
                       is_float == (stored.codes == DType::e4m3);
  if (!stored.takes_codes) {
    formats.notes.push_back(concat(inputs->prefix(), "asks for ", bits, "-bit ",
                                   is_float ? "floats" : "integers", " beside weights stored as ",
                                   to_string(stored), "; products take values instead"));
    return;
  }
  const json* dynamic = inputs->find("dynamic");
  const bool is_dynamic = dynamic != nullptr && (!dynamic->is_boolean() || dynamic->get<bool>());
  const bool is_per_tensor = inputs->text_or_none("strategy").value_or("tensor") == "tensor";
  if (!inputs->flag("symmetric", true)) {
    formats.notes.push_back(concat(inputs->prefix(),
                                   "symmetric is false; inputs are quantised symmetrically, with "
                                   "a scale for each token"));
  } else {
    stored.has_input_scale = !is_dynamic && is_per_tensor;
  }
}

void read_compressed(const Fields& fields, StoredFormats& formats) {
  const std::string status = fields.text_or_none("quantization_status").value_or("compressed");
  if (status != "compressed" && status != "frozen") {
    fields.refuse("quantization_status", "compressed");
  }
  const std::string format = fields.text_or_none("format").value_or("");
  for (const std::string& text : fields.texts("ignore")) {
    formats.kept.emplace_back(text, concat(fields.prefix(), "ignore: "));
  }
  const auto groups = fields.object_or_none("config_groups");
  if (!groups) fields.refuse_missing("config_groups");
  for (const auto& [name, value] : fields.find("config_groups")->items()) {
    const Fields group(value, concat(groups->prefix(), shown(name), "."));
    StoredFormats::Rule rule{{}, CompressedGroup(group, format).read()};
    bool is_all = false;
    const std::vector<std::string> targets = group.texts("targets");
    if (targets.empty()) group.refuse_missing("targets");
    for (const std::string& target : targets) {
      if (target == "Linear") {
        is_all = true;
      } else {
        rule.targets.emplace_back(target, concat(group.prefix(), "targets: "));
      }
    }
    if (is_all) rule.targets.clear();
    read_inputs(group, rule.format, formats);
    formats.rules.push_back(std::move(rule));
  }
  if (fields.has("kv_cache_scheme")) {
    formats.notes.push_back(concat(fields.prefix(),
                                   "kv_cache_scheme: the cache keeps keys and values as --kv "
                                   "says; e4m3 and e5m2 use the scales of the checkpoint"));
  }
}

}  // namespace

std::shared_ptr<const StoredFormats> StoredFormats::parse(const Fields& fields) {
  auto formats = std::make_shared<StoredFormats>();
  const auto method = fields.text_or_none("quant_method");
  if (!method) fields.refuse_missing("quant_method");
  formats->method = *method;
  if (*method == "gptq") {
    read_gptq(fields, *formats);
  } else if (*method == "awq") {
    read_awq(fields, *formats);
  } else if (*method == "compressed-tensors") {
    read_compressed(fields, *formats);
  } else if (*method == "fp8") {
    read_fp8(fields, *formats);
  } else if (*method == "bitsandbytes") {
    read_bitsandbytes(fields, *formats);
  } else {
    fields.refuse("quant_method", "gptq, awq, compressed-tensors, fp8 or bitsandbytes");
  }
  return formats;
}

}  // namespace tessera::model
