// Where weights come from: a checkpoint's files, or a random generator.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/formats/code_form.h"
#include "model/safetensors.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"

namespace tessera::model {

// A tensor as a checkpoint holds it. A vector has one column.
struct TensorSpec {
  std::string name;
  int64_t num_rows = 0;
  int64_t num_cols = 1;
  bool is_vector = false;
  std::optional<float> random_value = {};  // what a random model has for all of it, as in a norm
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The narrowest of f32, f16 and bf16 that holds the tensor's values exactly.
  virtual DType dtype_of(const TensorSpec& spec) const = 0;
  // The type that read() writes without converting: the stored one, or `wanted` if values are made
  // up.
  virtual DType native_dtype(const TensorSpec& spec, DType wanted) const = 0;
  // Elements [row, row + to.size(0)) x [col, col + to.size(1)) of the tensor, converted. `to` is on
  // the CPU, contiguous, f32, f16 or bf16. Called from several threads at once.
  virtual void read(const TensorSpec& spec, int64_t row, int64_t col,
                    const TensorView& to) const = 0;
  // The same, exactly, of a tensor that is stored as codes: `to` has the form, with a scale for
  // every row (formats/decoded_rows.h).
  virtual void read_codes(const TensorSpec& spec, int64_t row, int64_t col, const CodeForm& form,
                          const Weight& to) const;
  // The order of the columns of a tensor whose form has one.
  virtual std::vector<int32_t> read_order(const TensorSpec& spec) const;
  // What its codes stand for; for tensors whose form has a table.
  virtual std::vector<float> read_table(const TensorSpec& spec) const;
  // The static scale of the inputs of a tensor's layer, where its format has one.
  virtual float read_input_scale(const TensorSpec& spec) const;
};

// Refuses a checkpoint that does not hold exactly the tensors of `specs`: one that is missing, has
// another shape or cannot be loaded, or one that the model would not read although it is part of
// it, so that the answers would be wrong. Keeps `checkpoint` by reference.
std::unique_ptr<WeightSource> make_stored_source(const Checkpoint& checkpoint,
                                                 const ModelConfig& config,
                                                 const std::vector<TensorSpec>& specs);
// Weights are near normal with variance 1 / num_cols, so that activations keep their size; norms
// have no effect. An element depends on the seed, the tensor's name and its place alone: neither on
// threads nor on how the tensor is cut into ranks.
std::unique_ptr<WeightSource> make_random_source(uint64_t seed);

}  // namespace tessera::model
