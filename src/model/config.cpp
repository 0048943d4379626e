// config.json as Hugging Face writes it, in the spellings of old and new versions: what is common
// to all families. The rest is read by the family.
// SPDX-License-Identifier: MIT
#include "model/config.h"

#include <algorithm>
#include <string>

#include "core/read_file.h"
#include "core/text.h"
#include "model/bounded_json.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/formats/stored_format.h"
#include "model/gguf/gguf_model.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

constexpr int64_t kMaxConfigBytes = 1 << 20;

std::string listed(std::string_view Family::*field) {
  std::string text;
  for (const Family* family : families()) {
    text += concat(text.empty() ? "" : ", ", family->*field);
  }
  return text;
}

const Family* find_family(std::string_view Family::*field, std::string_view value) {
  for (const Family* family : families()) {
    if (family->*field == value) return family;
  }
  return nullptr;
}

const Family& read_family(const Fields& fields) {
  const std::vector<std::string> classes = fields.texts("architectures");
  const Family* by_class = nullptr;
  for (const std::string& class_name : classes) {
    by_class = find_family(&Family::class_name, class_name);
    if (by_class == nullptr) {
      fields.refuse("architectures", concat("one of ", listed(&Family::class_name)));
    }
  }
  const auto type = fields.text_or_none("model_type");
  if (!type && by_class == nullptr) fields.refuse_missing("model_type");
  if (!type) return *by_class;
  const Family* by_type = find_family(&Family::model_type, *type);
  if (by_type == nullptr) {
    fields.refuse("model_type", concat("one of ", listed(&Family::model_type)));
  }
  if (by_class != nullptr && by_class != by_type) {
    fields.refuse("architectures", concat(by_type->class_name, ", as model_type is ", *type));
  }
  return *by_type;
}

std::shared_ptr<const StoredFormats> read_formats(const Fields& fields) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const auto quantization = fields.object_or_none(key)) {
      return StoredFormats::parse(*quantization);
    }
  }
  return nullptr;
}

void read_sizes(const Fields& fields, const Family& family, ModelConfig& config) {
  config.num_layers = fields.whole("num_hidden_layers", 1, kMaxLayers);
  config.hidden = fields.whole("hidden_size", 1, kMaxHidden);
  config.inter = fields.whole("intermediate_size", 1, kMaxInter);
  config.vocab = fields.whole("vocab_size", 1, kMaxVocab);
  config.max_positions = fields.whole("max_position_embeddings", 1, kMaxPositions);
  config.num_heads = fields.whole("num_attention_heads", 1, kMaxHeads);
  config.num_kv_heads =
      fields.whole_or_none("num_key_value_heads", 1, kMaxHeads).value_or(config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    fields.refuse("num_key_value_heads",
                  concat("a divisor of num_attention_heads, which is ", config.num_heads));
  }
  std::optional<int64_t> head_dim = fields.whole_or_none("head_dim", 2, kMaxHeadDim);
  if (!head_dim && family.head_dim > 0) head_dim = family.head_dim;
  if (!head_dim && config.hidden % config.num_heads != 0) {
    fields.refuse("num_attention_heads", concat("a divisor of hidden_size, which is ",
                                                config.hidden, ", where head_dim is not given"));
  }
  config.head_dim = head_dim.value_or(config.hidden / config.num_heads);
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    fail(concat(fields.prefix(), "head_dim is ", config.head_dim,
                "; it must be even, as RoPE rotates pairs, and at most ", kMaxHeadDim));
  }
}

}  // namespace

Activation read_activation(const Fields& fields, std::string_view key, std::string_view absent) {
  const std::string text = fields.text_or_none(key).value_or(std::string(absent));
  if (text == "silu" || text == "swish") return Activation::silu;
  if (text == "gelu") return Activation::gelu;
  if (text == "gelu_new" || text == "gelu_pytorch_tanh") return Activation::gelu_tanh;
  if (text == "relu") return Activation::relu;
  fields.refuse(key, "one of silu, gelu, gelu_new, gelu_pytorch_tanh, relu");
}

namespace {

DType read_dtype(const Fields& fields) {
  const char* key = fields.has("dtype") ? "dtype" : "torch_dtype";
  std::string text = fields.text_or_none(key).value_or("float32");
  if (text.starts_with("torch.")) text.erase(0, 6);
  if (text == "float32") return DType::f32;
  if (text == "float16") return DType::f16;
  if (text == "bfloat16") return DType::bf16;
  fields.refuse(key, "float32, float16 or bfloat16");
}

void add_stop_tokens(const Fields& fields, ModelConfig& config) {
  for (const int32_t id : fields.ids("eos_token_id", config.vocab)) {
    if (std::ranges::find(config.eos_tokens, id) != config.eos_tokens.end()) continue;
    config.eos_tokens.push_back(id);
  }
  const std::vector<int32_t> bos = fields.ids("bos_token_id", config.vocab);
  if (!config.bos_token && !bos.empty()) config.bos_token = bos.front();
}

}  // namespace

void read_biases(const Fields& fields, ModelConfig& config) {
  config.has_qkv_bias = config.has_output_bias = fields.flag("attention_bias", false);
  config.has_mlp_bias = fields.flag("mlp_bias", false);
}

void read_window(const Fields& fields, ModelConfig& config) {
  config.window = fields.whole_or_none("sliding_window", 1, kMaxPositions).value_or(0);
  const std::vector<std::string> types = fields.texts("layer_types");
  if (types.empty()) return;
  config.windowed_layers.clear();
  for (const std::string& type : types) {
    config.windowed_layers.push_back(type == "sliding_attention");
    if (type == "sliding_attention" || type == "full_attention") continue;
    fields.refuse("layer_types", "a list of full_attention and sliding_attention");
  }
  if (std::ssize(types) != config.num_layers) {
    fields.refuse("layer_types", concat("a list of ", config.num_layers, ", one for each layer"));
  }
  if (std::ranges::count(config.windowed_layers, true) == 0) config.window = 0;
}

void read_late_window(const Fields& fields, ModelConfig& config) {
  if (!fields.flag("use_sliding_window", false)) return;
  const int64_t first = fields.whole_or_none("max_window_layers", 0, kMaxLayers).value_or(0);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    config.windowed_layers.push_back(layer >= first);
  }
  read_window(fields, config);
}

int64_t ModelConfig::kv_bytes_per_token(DType kv_dtype) const {
  return num_layers * 2 * storage_bytes(kv_dtype, num_kv_heads * head_dim);
}

ModelConfig parse_config(std::string_view text, std::string_view origin) {
  if (static_cast<int64_t>(text.size()) > kMaxConfigBytes) {
    fail(concat(origin, ": has ", text.size(), " bytes; at most ", kMaxConfigBytes, " are read"));
  }
  const json document = parse_json(text, origin);
  const Fields fields(document, concat(origin, ": "));
  ModelConfig config;
  const Family& family = read_family(fields);
  config.architecture = family.model_type;
  config.formats = read_formats(fields);
  read_sizes(fields, family, config);
  read_rope(fields, config);
  config.norm_eps =
      static_cast<float>(fields.number_or_none("rms_norm_eps", 0.0, 1.0).value_or(1e-6));
  config.activation = read_activation(fields, "hidden_act", "silu");
  config.dtype = read_dtype(fields);
  config.has_tied_embeddings = fields.flag("tie_word_embeddings", family.ties_embeddings);
  add_stop_tokens(fields, config);
  family.read(fields, config);
  return config;
}

ModelConfig load_config(const std::filesystem::path& folder) {
  if (is_gguf(folder)) {
    const WeightFile file(folder);
    return gguf_config(GgufFile::parse(file),
                       [&](int64_t begin, std::span<std::byte> to) { file.read(begin, to); });
  }
  const std::filesystem::path path = folder / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    fail(concat(shown_path(path.native()),
                ": there is no such file; give the folder of a Hugging Face model"));
  }
  ModelConfig config = parse_config(read_file(path, kMaxConfigBytes), shown_path(path.native()));
  const std::filesystem::path generation = folder / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const json document =
        parse_json(read_file(generation, kMaxConfigBytes), shown_path(generation.native()));
    add_stop_tokens(Fields(document, concat(shown_path(generation.native()), ": ")), config);
  }
  if (config.formats != nullptr) {
    config.formats = config.formats->with_scale_types(Checkpoint::open(folder));
  }
  return config;
}

}  // namespace tessera::model
