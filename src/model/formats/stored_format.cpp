// Formats of layers by name, and the forms they become.
// SPDX-License-Identifier: MIT
#include "model/formats/stored_format.h"

#include <algorithm>

#include "core/text.h"
#include "model/formats/gguf_blocks.h"
#include "model/safetensors.h"

namespace tessera::model {
namespace {

constexpr StoredFormat kValues = {};

bool is_matched(const std::vector<NamePattern>& patterns, std::string_view layer) {
  return std::ranges::any_of(patterns, [&](const NamePattern& one) { return one.matches(layer); });
}

std::string_view storage_name(Storage storage) {
  switch (storage) {
    case Storage::values: return "values";
    case Storage::gptq: return "gptq";
    case Storage::gptq_v2: return "gptq_v2";
    case Storage::awq: return "awq";
    case Storage::packed: return "pack-quantized";
    case Storage::bytes: return "codes";
    case Storage::nf4: return "nf4";
    case Storage::mxfp4: return "mxfp4";
    case Storage::gguf: return "gguf";
  }
  return "";
}

}  // namespace

std::optional<CodeForm> form_of(const StoredFormat& format, int64_t k) {
  CodeForm form{.group = format.group == k ? 0 : format.group,
                .has_zero_points = format.has_zero_points,
                .has_order = format.has_order,
                .scale = format.scale};
  switch (format.storage) {
    case Storage::values: return std::nullopt;
    // Blocks of NF4 are counted over the whole tensor: where rows are not whole blocks, one block
    // reaches into the next row, and no scales by row hold it.
    case Storage::nf4:
    case Storage::mxfp4:
      form.codes = DType::i4;
      form.has_table = true;
      break;
    case Storage::gptq:
    case Storage::gptq_v2:
    case Storage::awq:
    case Storage::packed:
      form.codes = format.bits == 4 ? DType::i4 : format.has_zero_points ? DType::u8 : DType::i8;
      break;
    case Storage::bytes:
      form.codes = format.codes == DType::i8 && format.has_zero_points ? DType::u8 : format.codes;
      if (format.rows_per_scale > 1) form.group = format.group;
      form.rows_per_scale = std::max<int64_t>(1, format.rows_per_scale);
      break;
    case Storage::gguf: {
      const BlockType& type = block_type(format.block_type);
      if (!type.codes) return std::nullopt;
      form.codes = *type.codes;
      form.group = type.group;
      form.scale = type.scale;
      break;
    }
  }
  // With one group there is nothing to sort.
  if (form.group == 0) form.has_order = false;
  return fits(form, k) ? std::optional(form) : std::nullopt;
}

std::string to_string(const StoredFormat& format) {
  if (format.storage == Storage::gguf) return std::string(block_type(format.block_type).name);
  if (format.storage == Storage::values) return "values";
  std::string text(storage_name(format.storage));
  if (format.storage == Storage::bytes) text = std::string(name(format.codes));
  if (format.bits > 0) text += concat(", ", format.bits, " bits");
  if (format.rows_per_scale > 1) {
    text += concat(", blocks of ", format.rows_per_scale, " x ", format.group);
  } else if (format.rows_per_scale == 0) {
    text += ", one scale";
  } else {
    text += format.group > 0 ? concat(", groups of ", format.group) : ", a scale per row";
  }
  if (format.has_zero_points) text += ", zero points";
  if (format.has_order) text += ", act-order";
  return text;
}

std::string_view scale_name(const StoredFormat& format) {
  switch (format.storage) {
    case Storage::gptq:
    case Storage::gptq_v2:
    case Storage::awq: return "scales";
    case Storage::packed: return "weight_scale";
    case Storage::bytes: return format.scale_suffix;
    case Storage::values:
    case Storage::nf4:
    case Storage::mxfp4:
    case Storage::gguf: break;
  }
  return "";
}

std::shared_ptr<const StoredFormats> StoredFormats::with_scale_types(
    const Checkpoint& checkpoint) const {
  auto made = std::make_shared<StoredFormats>(*this);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (tensor.dtype != DType::f16 && tensor.dtype != DType::bf16) continue;
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) continue;
    const std::string layer = name.substr(0, dot);
    const StoredFormat& format = of(layer);
    if (name.substr(dot + 1) != scale_name(format)) continue;
    made->by_name.insert_or_assign(layer, format).first->second.scale = *tensor.dtype;
  }
  return made;
}

const StoredFormat& StoredFormats::of(std::string_view layer) const {
  if (const auto found = by_name.find(layer); found != by_name.end()) return found->second;
  // Embeddings are never linear layers.
  if (layer.ends_with("embed_tokens") || is_matched(kept, layer)) return kValues;
  for (const Rule& rule : rules) {
    if (rule.targets.empty() || is_matched(rule.targets, layer)) return rule.format;
  }
  return kValues;
}

}  // namespace tessera::model
