// Weights out of a checkpoint: what must be there, and how its bytes become values.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstddef>
#include <set>
#include <vector>

#include "core/text.h"
#include "model/bounded_json.h"
#include "model/weight_source.h"
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

// A tensor of the model proper that the forward pass would not read changes what the model is. Old
// files carry the angles of RoPE, and tied ones may carry the head again; those are not needed.
bool may_be_ignored(std::string_view name, const ModelConfig& config) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  if (name == "lm_head.weight") return config.has_tied_embeddings;
  return !name.starts_with("model.") && !name.starts_with("lm_head.");
}

class StoredSource final : public WeightSource {
 public:
  StoredSource(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint) {
    std::set<std::string_view> known;
    const std::vector<TensorSpec> specs = tensor_specs(config);
    for (const TensorSpec& spec : specs) {
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
      fail(concat("checkpoint: tensor '", shown(name), "' ", describe(tensor.shape),
                  " has no place in a ", model::name(config.architecture), " of ",
                  config.num_layers,
                  " layers as config.json describes it; without it the model's "
                  "answers would be wrong"));
    }
  }

  DType dtype_of(const TensorSpec& spec) const override {
    return *checkpoint_.find(spec.name)->dtype;
  }

  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
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
  // Consecutive elements from `first` on. What needs no conversion is read to its place; the rest
  // goes through a buffer that stays in the cache between the read and the conversion.
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
};

}  // namespace

std::unique_ptr<WeightSource> make_stored_source(const Checkpoint& checkpoint,
                                                 const ModelConfig& config) {
  return std::make_unique<StoredSource>(checkpoint, config);
}

}  // namespace tessera::model
