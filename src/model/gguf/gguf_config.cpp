// Metadata to ModelConfig, by way of the config.json that would say the same, so that one reader
// knows what is valid.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <vector>

#include "core/text.h"
#include "model/formats/gguf_blocks.h"
#include "model/formats/stored_format.h"
#include "model/gguf/gguf_model.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

using nlohmann::json;

struct Architecture {
  std::string_view name;  // in both files
  std::string_view class_name;
  bool interleaves_heads;  // the halves of a head's rows of q and k alternate
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", true},
    {"qwen2", "Qwen2ForCausalLM", false},
    {"qwen3", "Qwen3ForCausalLM", false},
};

struct NamePair {
  std::string_view gguf, ours;
};
constexpr NamePair kBlockNames[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr NamePair kNames[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr std::string_view kRopeFactors = "rope_freqs.weight";

const Architecture& read_architecture(const GgufFile& gguf) {
  const auto name = gguf.text("general.architecture");
  if (!name) gguf.refuse("general.architecture", "is missing");
  std::string all;
  for (const Architecture& one : kArchitectures) {
    if (one.name == *name) return one;
    all += concat(all.empty() ? "" : ", ", one.name);
  }
  gguf.refuse("general.architecture",
              concat("is '", shown(*name), "'; supported in GGUF files are ", all));
}

// Reads keys of the architecture: "llama.block_count".
class ModelKeys {
 public:
  ModelKeys(const GgufFile& gguf, std::string_view architecture)
      : gguf_(gguf), prefix_(concat(architecture, ".")) {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  int64_t whole(std::string_view name) const {
    const auto value = gguf_.whole(key(name));
    if (!value) gguf_.refuse(key(name), "is missing");
    return *value;
  }
  std::optional<int64_t> whole_or_none(std::string_view name) const {
    return gguf_.whole(key(name));
  }
  std::optional<double> number_or_none(std::string_view name) const {
    return gguf_.number(key(name));
  }
  std::optional<std::string> text_or_none(std::string_view name) const {
    return gguf_.text(key(name));
  }

 private:
  const GgufFile& gguf_;
  std::string prefix_;
};

// The factors by which Llama 3 divides its frequencies.
std::vector<double> llama3_factors(int64_t head_dim, double theta, double factor) {
  constexpr double kLow = 1.0, kHigh = 4.0, kContext = 8192.0;
  std::vector<double> factors;
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double wavelength =
        2 * std::numbers::pi *
        std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    if (wavelength < kContext / kHigh) {
      factors.push_back(1.0);
    } else if (wavelength > kContext / kLow) {
      factors.push_back(factor);
    } else {
      const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
      factors.push_back(1.0 / ((1.0 - smooth) / factor + smooth));
    }
  }
  return factors;
}

// A file stores the factors, not what they were made of; those of Llama 3.1 and 3.2 are recognised.
json read_rope_factors(const GgufFile& gguf, const ReadBytes& read, const GgufTensor& tensor,
                       int64_t head_dim, double theta) {
  const BlockType& type = block_type(tensor.type);
  const int64_t count = head_dim / 2;
  if (tensor.shape != std::vector<int64_t>{count} || type.dtype != DType::f32) {
    gguf.refuse(kRopeFactors, concat("must be F32 with ", count, " elements"));
  }
  std::vector<float> stored(static_cast<size_t>(count));
  read(tensor.begin, std::as_writable_bytes(std::span(stored)));
  for (const double factor : {8.0, 32.0}) {
    const std::vector<double> wanted = llama3_factors(head_dim, theta, factor);
    bool is_same = true;
    for (size_t i = 0; i < stored.size(); ++i) {
      is_same =
          is_same && std::fabs(static_cast<double>(stored[i]) - wanted[i]) <= 1e-3 * wanted[i];
    }
    if (is_same) {
      return {{"rope_type", "llama3"},   {"rope_theta", theta},
              {"factor", factor},        {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 8192}};
    }
  }
  gguf.refuse(kRopeFactors, "holds factors that are neither those of Llama 3.1 nor of Llama 3.2");
}

json read_rope(const GgufFile& gguf, const ReadBytes& read, const ModelKeys& keys,
               int64_t head_dim) {
  const double theta = keys.number_or_none("rope.freq_base").value_or(10000.0);
  if (const GgufTensor* factors = gguf.find_tensor(kRopeFactors)) {
    return read_rope_factors(gguf, read, *factors, head_dim, theta);
  }
  const std::string type = keys.text_or_none("rope.scaling.type").value_or("none");
  if (type == "none") return {{"rope_type", "default"}, {"rope_theta", theta}};
  json rope = {{"rope_type", type},
               {"rope_theta", theta},
               {"factor", keys.number_or_none("rope.scaling.factor").value_or(1.0)}};
  if (type != "linear" && type != "yarn") {
    gguf.refuse(keys.key("rope.scaling.type"),
                concat("is '", shown(type), "'; it must be none, linear or yarn"));
  }
  if (const auto context = keys.whole_or_none("rope.scaling.original_context_length")) {
    rope["original_max_position_embeddings"] = *context;
  }
  return rope;
}

json token_ids(const GgufFile& gguf) {
  json ids = json::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const auto id = gguf.whole(key);
    if (id && std::ranges::find(ids, json(*id)) == ids.end()) ids.push_back(*id);
  }
  return ids;
}

const char* dtype_name(const GgufFile& gguf) {
  const GgufTensor* tensor = gguf.find_tensor("token_embd.weight");
  const auto dtype = tensor == nullptr ? std::nullopt : block_type(tensor->type).dtype;
  return dtype == DType::f32 ? "float32" : dtype == DType::f16 ? "float16" : "bfloat16";
}

bool is_query_or_key(std::string_view name) {
  return name.ends_with(".attn_q.weight") || name.ends_with(".attn_k.weight");
}

std::shared_ptr<const StoredFormats> read_formats(const GgufFile& gguf,
                                                  const Architecture& architecture,
                                                  int64_t head_dim) {
  auto formats = std::make_shared<StoredFormats>();
  formats->method = "gguf";
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (tensor.shape.size() != 2) continue;
    const bool is_turned = architecture.interleaves_heads && is_query_or_key(tensor.name);
    if (block_type(tensor.type).dtype && !is_turned) continue;
    std::string layer = gguf_tensor_name(tensor.name);
    constexpr std::string_view kWeight = ".weight";
    if (layer.ends_with(kWeight)) layer.resize(layer.size() - kWeight.size());
    formats->by_name[layer] = {
        .storage = Storage::gguf, .block_type = tensor.type, .head_rows = is_turned ? head_dim : 0};
  }
  return formats;
}

}  // namespace

std::string gguf_tensor_name(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  const size_t last = name.rfind('.');
  const std::string_view stem = name.substr(0, last);
  const std::string_view suffix = last == std::string_view::npos ? "" : name.substr(last);
  if (name == kRopeFactors) return std::string(name);
  for (const NamePair& pair : kNames) {
    if (stem == pair.gguf) return concat(pair.ours, suffix);
  }
  if (stem.starts_with(kBlock)) {
    const size_t dot = stem.find('.', kBlock.size());
    if (dot != std::string_view::npos) {
      const std::string_view layer = stem.substr(kBlock.size(), dot - kBlock.size());
      for (const NamePair& pair : kBlockNames) {
        if (stem.substr(dot + 1) == pair.gguf) {
          return concat("model.layers.", layer, ".", pair.ours, suffix);
        }
      }
    }
  }
  return concat("model.", name);
}

ModelConfig gguf_config(const GgufFile& gguf, const ReadBytes& read) {
  const Architecture& architecture = read_architecture(gguf);
  const ModelKeys keys(gguf, architecture.name);
  const int64_t num_heads = keys.whole("attention.head_count");
  const int64_t hidden = keys.whole("embedding_length");
  if (num_heads < 1 || num_heads > kMaxHeads || hidden < 1 || hidden > kMaxHidden) {
    gguf.refuse(keys.key("attention.head_count"),
                concat("is ", num_heads, " and embedding_length ", hidden, "; they must be 1 to ",
                       kMaxHeads, " and 1 to ", kMaxHidden));
  }
  const int64_t head_dim = keys.whole_or_none("attention.key_length").value_or(hidden / num_heads);
  if (head_dim < 2 || head_dim > kMaxHeadDim || head_dim % 2 != 0) {
    gguf.refuse(keys.key("attention.key_length"),
                concat("is ", head_dim, "; it must be even and at most ", kMaxHeadDim));
  }
  if (const auto turned = keys.whole_or_none("rope.dimension_count");
      turned && *turned != head_dim) {
    gguf.refuse(keys.key("rope.dimension_count"),
                concat("is ", *turned, "; it must be the size of a head, ", head_dim));
  }
  const std::vector<std::string>* tokens = gguf.texts("tokenizer.ggml.tokens");
  json document = {
      {"model_type", architecture.name},
      {"architectures", {architecture.class_name}},
      {"num_hidden_layers", keys.whole("block_count")},
      {"hidden_size", hidden},
      {"intermediate_size", keys.whole("feed_forward_length")},
      {"num_attention_heads", num_heads},
      {"num_key_value_heads", keys.whole_or_none("attention.head_count_kv").value_or(num_heads)},
      {"head_dim", head_dim},
      {"vocab_size", tokens != nullptr ? std::ssize(*tokens) : keys.whole("vocab_size")},
      {"max_position_embeddings", keys.whole("context_length")},
      {"rms_norm_eps", keys.number_or_none("attention.layer_norm_rms_epsilon").value_or(1e-5)},
      {"rope_parameters", read_rope(gguf, read, keys, head_dim)},
      {"tie_word_embeddings", gguf.find_tensor("output.weight") == nullptr},
      {"torch_dtype", dtype_name(gguf)},
      {"eos_token_id", token_ids(gguf)}};
  if (const auto bos = gguf.whole("tokenizer.ggml.bos_token_id")) document["bos_token_id"] = *bos;
  if (gguf.find_tensor("blk.0.attn_q.bias") != nullptr) {
    // A vector has no order of heads here; no model of these families needs one.
    if (architecture.interleaves_heads) {
      gguf.refuse("blk.0.attn_q.bias", "is there; biases of queries are supported for qwen2 only");
    }
    document["attention_bias"] = true;
  }
  ModelConfig config = parse_config(document.dump(), gguf.origin());
  config.formats = read_formats(gguf, architecture, head_dim);
  return config;
}

}  // namespace tessera::model
