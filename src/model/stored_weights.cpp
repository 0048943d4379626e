// Weights out of a checkpoint: what must be there, and how its bytes become values.
// SPDX-License-Identifier: MIT
#include <cstring>
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
  const DType dtype = values_of(tensor).dtype;
  if (!is_float16_or_32(dtype)) {
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

  void read(const TensorSpec& spec, int64_t row, int64_t col, const TensorView& to) const override {
    const TensorView& stored = checkpoint_.find(spec.name)->view;
    const TensorView matrix =
        TensorView::contiguous(stored.data, stored.dtype, {spec.num_rows, spec.num_cols});
    const TensorView from = matrix.slice(0, row, row + to.size(0)).slice(1, col, col + to.size(1));
    const auto element_bytes = static_cast<size_t>(bit_width(stored.dtype) / 8);
    if (reinterpret_cast<uintptr_t>(from.data) % element_bytes == 0) {
      convert(from, to);
    } else {
      read_misaligned(from, to);
    }
  }

 private:
  // The format asks for no alignment: rows go through a buffer that has it.
  static void read_misaligned(const TensorView& from, const TensorView& to) {
    const int64_t row_bytes = storage_bytes(from.dtype, from.size(1));
    const Tensor row(from.dtype, {1, from.size(1)});
    for (int64_t i = 0; i < from.size(0); ++i) {
      const auto* bytes =
          from.as<const std::byte>() + storage_bytes(from.dtype, i * from.stride(0));
      std::memcpy(row.view().data, bytes, static_cast<size_t>(row_bytes));
      convert(row, to.slice(0, i, i + 1));
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
