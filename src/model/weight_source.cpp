// Weights out of a checkpoint, and random ones.
// SPDX-License-Identifier: MIT
#include "model/weight_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/element.h"
#include "core/text.h"
#include "model/formats/stored_layer.h"
#include "model/formats/tensor_strip.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

std::string describe(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::vector<int64_t> shape_of(const TensorSpec& spec) {
  if (spec.is_vector) return {spec.num_rows};
  return {spec.num_rows, spec.num_cols};
}

std::string remedy(const TensorSpec& spec) {
  if (spec.name == "lm_head.weight") return "; if the head is tied, set tie_word_embeddings";
  if (spec.name.ends_with(".bias")) return "; config.json says that it has a bias";
  return "; the checkpoint is incomplete, or config.json is of another model";
}

void check_fit(const StoredTensor& tensor, const TensorSpec& spec) {
  const std::vector<int64_t> want = shape_of(spec);
  if (tensor.shape != want) {
    fail(concat("checkpoint: tensor '", spec.name, "' has shape ", describe(tensor.shape),
                " and config.json asks for ", describe(want), "; they must be of one model"));
  }
  if (!is_float16_or_32(loadable_dtype(tensor))) {
    fail(concat("checkpoint: tensor '", spec.name, "' is ", tensor.type,
                "; weights must be F32, F16 or BF16"));
  }
}

// Scales of activations and of the cache. Those that a product uses are listed by their layer; the
// others are not needed.
bool is_activation_scale(std::string_view name) {
  for (const std::string_view suffix :
       {".input_scale", ".input_zero_point", ".output_scale", ".k_scale", ".v_scale", ".q_scale",
        ".prob_scale", ".input_global_scale"}) {
    if (name.ends_with(suffix)) return true;
  }
  return false;
}

// GPTQ's tools write biases of zeros for layers that have none.
bool is_zero_bias(const StoredTensor& tensor) {
  if (!tensor.name.ends_with(".bias") || !tensor.dtype || !is_float16_or_32(*tensor.dtype)) {
    return false;
  }
  const int64_t count = tensor.num_bytes * 8 / bit_width(*tensor.dtype);
  const std::vector<float> values = read_floats(tensor, {.num_cols = count});
  return std::ranges::all_of(values, [](float value) { return value == 0.0f; });
}

std::string_view layer_of(const TensorSpec& spec) {
  constexpr std::string_view kWeight = ".weight";
  std::string_view name = spec.name;
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return name;
}

// A tensor of the model itself that the forward pass does not read would change the answers. Two
// kinds are harmless: RoPE's angles in old files, and a second copy of a tied head.
bool may_be_ignored(std::string_view name, const ModelConfig& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (config.formats != nullptr && is_activation_scale(name)) return true;
  if (name == "lm_head.weight") return config.has_tied_embeddings;
  return !name.starts_with("model.") && !name.starts_with("lm_head.");
}

class StoredSource final : public WeightSource {
 public:
  StoredSource(const Checkpoint& checkpoint, const ModelConfig& config,
               const std::vector<TensorSpec>& specs)
      : checkpoint_(checkpoint) {
    std::set<std::string_view> known;
    for (const TensorSpec& spec : specs) {
      if (config.formats != nullptr && !spec.is_vector) {
        const StoredFormat& format = config.formats->of(layer_of(spec));
        if (format.storage != Storage::values) {
          const auto added = layers_.try_emplace(spec.name, checkpoint, std::string(layer_of(spec)),
                                                 format, spec.num_rows, spec.num_cols);
          for (const std::string& name : added.first->second.tensor_names()) known.insert(name);
          continue;
        }
      }
      const StoredTensor* tensor = checkpoint.find(spec.name);
      if (tensor == nullptr) {
        fail(concat("checkpoint: tensor '", spec.name, "' ", describe(shape_of(spec)),
                    " is missing", remedy(spec)));
      }
      check_fit(*tensor, spec);
      known.insert(spec.name);
    }
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (known.contains(name) || may_be_ignored(name, config)) continue;
      if (config.formats != nullptr && is_zero_bias(tensor)) continue;
      fail(concat("checkpoint: tensor '", shown(name), "' ", describe(tensor.shape),
                  " has no place in a ", config.architecture, " of ", config.num_layers,
                  " layers as config.json describes it; without it the model's "
                  "answers would be wrong"));
    }
  }

  DType dtype_of(const TensorSpec& spec) const override {
    return layers_.contains(spec.name) ? DType::f32 : *checkpoint_.find(spec.name)->dtype;
  }
  DType native_dtype(const TensorSpec& spec, DType wanted) const override {
    return layers_.contains(spec.name) ? wanted : dtype_of(spec);
  }

  void read_codes(const TensorSpec& spec, int64_t row, int64_t col, const CodeForm& form,
                  const Weight& to) const override {
    encode(layers_.at(spec.name).decode(row, to.n()), 0, col, form, to, spec.name);
  }
  std::vector<int32_t> read_order(const TensorSpec& spec) const override {
    return layers_.at(spec.name).order();
  }
  std::vector<float> read_table(const TensorSpec& spec) const override {
    return layers_.at(spec.name).table();
  }
  float read_input_scale(const TensorSpec& spec) const override {
    return layers_.at(spec.name).input_scale();
  }

  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
    if (const auto layer = layers_.find(spec.name); layer != layers_.end()) {
      if (to.dtype == DType::f32) return layer->second.read_values(row, col, to);
      const Tensor floats(DType::f32, {to.size(0), to.size(1)});
      layer->second.read_values(row, col, floats);
      return convert(floats, to);
    }
    const StoredTensor& stored = *checkpoint_.find(spec.name);
    const int64_t first = row * spec.num_cols + col;
    const TensorView values = TensorView::contiguous(to.data, to.dtype, {to.num_elements()});
    if (to.size(1) == spec.num_cols) return read_run(stored, first, values);
    for (int64_t i = 0; i < to.size(0); ++i) {
      read_run(stored, first + i * spec.num_cols,
               values.slice(0, i * to.size(1), (i + 1) * to.size(1)));
    }
  }

 private:
  // Consecutive elements from `first` on. Those that need no conversion are read straight to their
  // place; the rest pass through a buffer small enough to stay in the cache until it is converted.
  static void read_run(const StoredTensor& stored, int64_t first, const TensorView& to) {
    const DType dtype = *stored.dtype;
    const auto read_bytes = [&](int64_t element, int64_t count, void* bytes) {
      stored.file->read(
          stored.begin + storage_bytes(dtype, element),
          {static_cast<std::byte*>(bytes), static_cast<size_t>(storage_bytes(dtype, count))});
    };
    if (dtype == to.dtype) return read_bytes(first, to.num_elements(), to.data);
    alignas(64) std::array<std::byte, 64 << 10> buffer;
    const int64_t most = static_cast<int64_t>(buffer.size()) * 8 / bit_width(dtype);
    for (int64_t done = 0; done < to.num_elements(); done += most) {
      const int64_t count = std::min(most, to.num_elements() - done);
      read_bytes(first + done, count, buffer.data());
      convert(TensorView::contiguous(buffer.data(), dtype, {count}),
              to.slice(0, done, done + count));
    }
  }

  const Checkpoint& checkpoint_;
  std::map<std::string, StoredLayer, std::less<>> layers_;  // those that are not values, by tensor
};

// A hash of 32 bits in which every output bit depends on every input bit. It vectorises, so an 8B
// model is filled in seconds.
constexpr uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// The sum of the four bytes minus its mean: near normal up to 3.45 standard deviations.
constexpr float centred_byte_sum(uint32_t x) {
  const uint32_t pairs = (x & 0x00ff00ffu) + ((x >> 8) & 0x00ff00ffu);
  return static_cast<float>(static_cast<int32_t>((pairs & 0xffffu) + (pairs >> 16)) - 510);
}
constexpr float kByteSumDeviation = 147.79f;  // its standard deviation: sqrt(4 (256^2 - 1) / 12)

uint32_t hash_of(std::string_view text, uint64_t seed) {
  auto hash = static_cast<uint32_t>(seed ^ (seed >> 32));
  for (const char c : text) hash = mix(hash ^ static_cast<unsigned char>(c)) + 0x9e3779b9u;
  return hash;
}

class RandomSource final : public WeightSource {
 public:
  explicit RandomSource(uint64_t seed) : seed_(seed) {}

  DType dtype_of(const TensorSpec&) const override { return DType::f32; }
  DType native_dtype(const TensorSpec&, DType wanted) const override { return wanted; }

  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
    const auto width = static_cast<float>(spec.is_vector ? spec.num_rows : spec.num_cols);
    const float scale = 1.0f / (std::sqrt(width) * kByteSumDeviation);
    const uint32_t key = hash_of(spec.name, seed_);
    with_storage(to.dtype, [&]<class T>(std::type_identity<T>) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, F16> || std::is_same_v<T, Bf16>) {
        for (int64_t i = 0; i < to.size(0); ++i) {
          T* out = to.as<T>() + i * to.stride(0);
          const uint32_t row_key = mix(key ^ mix(static_cast<uint32_t>(row + i)));
          const auto first = static_cast<uint32_t>(col);
          for (int64_t j = 0; j < to.size(1); ++j) {
            const uint32_t bits = mix(row_key ^ (first + static_cast<uint32_t>(j)));
            out[j] = from_float<T>(spec.random_value ? *spec.random_value
                                                     : centred_byte_sum(bits) * scale);
          }
        }
      }
    });
  }

 private:
  uint64_t seed_;
};

}  // namespace

void WeightSource::read_codes(const TensorSpec& spec, int64_t, int64_t, const CodeForm&,
                              const Weight&) const {
  fail(concat("checkpoint: tensor '", spec.name, "' is not stored as codes"));
}

std::vector<int32_t> WeightSource::read_order(const TensorSpec& spec) const {
  fail(concat("checkpoint: tensor '", spec.name, "' has no order of columns"));
}

std::vector<float> WeightSource::read_table(const TensorSpec& spec) const {
  fail(concat("checkpoint: tensor '", spec.name, "' has no table of values"));
}

float WeightSource::read_input_scale(const TensorSpec& spec) const {
  fail(concat("checkpoint: tensor '", spec.name, "' has no scale of its inputs"));
}

std::unique_ptr<WeightSource> make_stored_source(const Checkpoint& checkpoint,
                                                 const ModelConfig& config,
                                                 const std::vector<TensorSpec>& specs) {
  return std::make_unique<StoredSource>(checkpoint, config, specs);
}

std::unique_ptr<WeightSource> make_random_source(uint64_t seed) {
  return std::make_unique<RandomSource>(seed);
}

}  // namespace tessera::model
