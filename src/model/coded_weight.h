// Weights of codes: which form a linear layer's weight takes and what it is multiplied by, how
// values become codes while they are loaded, and the tensors on the host that are filled before
// they go to the device.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "model/formats/code_form.h"
#include "model/slice_reader.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"

namespace tessera::model {

struct LoadOptions;

// The form of the weight made of these slices; none: values in the type of activations. Codes of a
// checkpoint stay codes where one form holds all slices exactly and the device multiplies by it.
std::optional<CodeForm> choose_form(const LoadOptions& options, const std::string& name,
                                    std::span<const Slice> slices, int64_t interleave);

// What a linear layer takes as its inputs: values in the type of activations, or codes.
struct InputForm {
  std::optional<DType> codes = {};  // i8 or e4m3, as the weight has them; none: values
  int64_t group = 0;                // inputs per scale; 0: one scale for all inputs of a token
  TensorView static_scale = {};     // f32 [1]: one scale for all tokens; rank 0: found by token
};
std::string to_string(const InputForm& form);  // "e4m3 per token"
inline constexpr int64_t kInputGroup = 128;    // inputs per scale beside weights in groups of 128

// The inputs of a layer whose weight [n, k] has the form. They are codes where ActivationFormat
// says so and the device has the product. Where is_static is set, the checkpoint has the scale,
// which is still to be read.
struct InputChoice {
  InputForm form = {};
  bool is_static = false;
};
InputChoice choose_inputs(const LoadOptions& options, const CodeForm& form,
                          std::span<const Slice> slices, int64_t n);

// How a slice's tensor is stored, for people: "awq, 4 bits, groups of 128, zero points"; empty for
// values.
std::string stored_as(const LoadOptions& options, const Slice& slice);

// The packing of a weight [n, k] of this form that options.device multiplies by fastest.
Packing packing_for(const LoadOptions& options, const CodeForm& form, int64_t n, int64_t k);

// A weight's tensors on the CPU, in Packing::rows, with a scale for every row.
struct HostWeight {
  HostWeight(const CodeForm& form, int64_t n, int64_t k);

  Weight view() const;
  // Keeps one row of scales for each block of rows.
  void fold_scales();

  CodeForm form;
  Tensor codes;       // [n, k]
  Tensor scale;       // [n] or [n, groups]; folded [n / rows_per_scale, groups]
  Tensor zero_point;  // u8, like scale; none: empty
  Tensor order;       // i32 [k]; none: empty
  Tensor table;       // f32 [16]; none: empty
};

// Rounds values to the nearest codes, after rounding the scales of groups to form.scale. Rows begin
// at a multiple of form.rows_per_scale.
void quantize_rows(const TensorView& values, const CodeForm& form, const Weight& to);

}  // namespace tessera::model
