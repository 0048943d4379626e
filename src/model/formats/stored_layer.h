// The tensors of one layer that is not stored as values, checked and decoded by rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/formats/decoded_rows.h"
#include "model/formats/stored_format.h"
#include "model/safetensors.h"

namespace tessera::model {

class StoredLayer {
 public:
  // The weight [n, k] of `layer`. Refuses, naming it, a tensor that is missing, or has another type
  // or shape than the format asks for. Keeps `checkpoint` by reference.
  StoredLayer(const Checkpoint& checkpoint, std::string layer, const StoredFormat& format,
              int64_t n, int64_t k);

  const StoredFormat& format() const { return format_; }
  const std::vector<std::string>& tensor_names() const { return names_; }

  // All columns of rows [row, row + count), for formats with a form (form_of).
  DecodedRows decode(int64_t row, int64_t count) const;
  // Elements as f32, for every format: to.size(0) rows from `row` on, to.size(1) columns from `col`
  // on.
  void read_values(int64_t row, int64_t col, const TensorView& to) const;
  // What codes stand for; for formats with a table.
  std::vector<float> table() const;
  // The columns in the order of their groups; for formats with an order.
  std::vector<int32_t> order() const;
  // The static scale of the layer's inputs; for formats with one. Refuses one that is not positive.
  float input_scale() const;

 private:
  const StoredTensor& add(std::string_view suffix, std::initializer_list<DType> types,
                          const std::vector<std::vector<int64_t>>& shapes);
  void find_tensors(const Checkpoint& checkpoint);
  void find_gguf(const Checkpoint& checkpoint);
  void find_nf4(const Checkpoint& checkpoint);
  [[noreturn]] void refuse(std::string_view tensor, std::string_view why) const;
  int64_t num_groups() const;
  std::vector<int32_t> groups_of_columns() const;
  void decode_words(int64_t row, DecodedRows& rows) const;
  void decode_packed(int64_t row, DecodedRows& rows) const;
  void decode_bytes(int64_t row, DecodedRows& rows) const;
  // GGUF: whole rows of blocks, in the order of the model.
  void read_blocks(int64_t row, int64_t count, std::vector<std::byte>& blocks) const;
  void read_nf4(int64_t row, int64_t count, std::span<float> values) const;
  std::vector<float> read_absmax(int64_t first_block, int64_t num_blocks) const;
  void decode_nf4_codes(int64_t row, DecodedRows& rows) const;
  void decode_mxfp4(int64_t row, DecodedRows& rows) const;

  const Checkpoint* checkpoint_;
  std::string layer_;
  StoredFormat format_;
  int64_t n_;
  int64_t k_;
  std::vector<std::string> names_;
  const StoredTensor* codes_ = nullptr;
  const StoredTensor* scale_ = nullptr;
  const StoredTensor* zeros_ = nullptr;      // null: none
  const StoredTensor* groups_of_ = nullptr;  // null: column / group
  const StoredTensor* input_scale_ = nullptr;
  struct Nf4;
  std::shared_ptr<const Nf4> nf4_;  // null for other formats
};

}  // namespace tessera::model
