// Where weights come from: a checkpoint's bytes, or a random generator. What is made of them is
// the same for both.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/safetensors.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// A tensor as a checkpoint holds it. A vector has one column.
struct TensorSpec {
  std::string name;
  int64_t num_rows = 0;
  int64_t num_cols = 1;
  bool is_vector = false;
};

// Every tensor a model of this shape has.
std::vector<TensorSpec> tensor_specs(const ModelConfig& config);
// The same by parts: the name of a tensor of a layer, and its shape.
TensorSpec layer_spec(const ModelConfig& config, int64_t layer, std::string_view name);
TensorSpec embedding_spec(const ModelConfig& config);
TensorSpec final_norm_spec(const ModelConfig& config);
TensorSpec head_spec(const ModelConfig& config);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The narrowest of f32, f16 and bf16 that holds the tensor's values as they are.
  virtual DType dtype_of(const TensorSpec& spec) const = 0;
  // Elements [row, row + to.size(0)) x [col, col + to.size(1)) of the tensor, converted. `to` is on
  // the CPU, contiguous, f32, f16 or bf16. Called from several threads at once.
  virtual void read(const TensorSpec& spec, int64_t row, int64_t col,
                    const TensorView& to) const = 0;
};

// Refuses a checkpoint that does not fit the config: a tensor that is missing, has another shape or
// cannot be loaded, or is there and has no place in the model, so that the result would be wrong.
// Keeps `checkpoint` by reference.
std::unique_ptr<WeightSource> make_stored_source(const Checkpoint& checkpoint,
                                                 const ModelConfig& config);
// Norms are 1; weights are near normal with variance 1 / num_cols, so that activations keep their
// size. An element depends on the seed, the tensor's name and its place alone: neither on threads
// nor on how the tensor is cut into ranks.
std::unique_ptr<WeightSource> make_random_source(uint64_t seed);

}  // namespace tessera::model
