// Layers of GGUF files, of bitsandbytes and of MXFP4, and the values of layers in any format.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "model/bounded_json.h"
#include "model/config_fields.h"
#include "model/formats/gguf_blocks.h"
#include "model/formats/nf4.h"
#include "model/formats/stored_layer.h"
#include "model/formats/tensor_strip.h"
#include "model/formats/unpack.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr std::string_view kNf4State = "weight.quant_state.bitsandbytes__nf4";
constexpr int64_t kMaxStateBytes = 64 << 10;
constexpr int64_t kMaxBlock = 1 << 20;

}  // namespace

struct StoredLayer::Nf4 {
  std::vector<float> table;  // [16]
  int64_t block = 0;         // elements per largest value
  const StoredTensor* absmax = nullptr;
  // Where the largest values are quantised:
  const StoredTensor* nested_absmax = nullptr;  // null: they are not
  std::vector<float> nested_table;              // [256]
  int64_t nested_block = 0;
  float offset = 0.0f;
};

void StoredLayer::find_gguf(const Checkpoint& checkpoint) {
  const std::string full = layer_ + ".weight";
  codes_ = checkpoint.find(full);
  if (codes_ == nullptr) refuse("weight", "is missing; the file is incomplete");
  if (codes_->shape != std::vector<int64_t>{n_, k_}) {
    std::string shape;
    for (const int64_t size : codes_->shape) shape += concat(shape.empty() ? "" : ", ", size);
    refuse("weight", concat("has shape [", shape, "]; the model needs [", n_, ", ", k_, "]"));
  }
  const BlockType& type = block_type(format_.block_type);
  if (k_ % type.num_elements != 0) {
    refuse("weight", concat("has rows of ", k_, " elements, which are not whole blocks of ",
                            type.name, ", ", type.num_elements, " elements each"));
  }
  names_.push_back(full);
}

void StoredLayer::find_nf4(const Checkpoint& checkpoint) {
  auto nf4 = std::make_shared<Nf4>();
  const std::string state_name = concat(layer_, ".", kNf4State);
  const StoredTensor* state = checkpoint.find(state_name);
  if (state == nullptr || state->dtype != DType::u8 || state->num_bytes > kMaxStateBytes) {
    refuse(kNf4State, concat("must be there, U8 and at most ", kMaxStateBytes, " bytes"));
  }
  names_.push_back(state_name);
  const std::vector<char> text = read_strip<char>(*state, {.num_cols = state->num_bytes});
  const std::string origin = concat("checkpoint: tensor '", state_name, "'");
  const nlohmann::json document = parse_json({text.data(), text.size()}, origin);
  const Fields fields(document, origin + ": ");
  nf4->block = fields.whole("blocksize", 2, kMaxBlock);
  const nlohmann::json want_shape = {n_, k_};
  if (const nlohmann::json* shape = fields.find("shape");
      shape == nullptr || *shape != want_shape) {
    refuse(kNf4State, concat("says shape ", shape == nullptr ? "nothing" : shape->dump(),
                             "; the model needs ", want_shape.dump()));
  }
  if (n_ * k_ % 2 != 0) refuse("weight", concat("[", n_, ", ", k_, "] has an odd number of codes"));
  codes_ = &add("weight", {DType::u8}, {{n_ * k_ / 2, 1}});
  nf4->table = read_floats(add("weight.quant_map", {DType::f32}, {{16}}), {.num_cols = 16});
  for (size_t i = 0; i < nf4->table.size(); ++i) {
    if (std::isfinite(nf4->table[i])) continue;
    refuse("weight.quant_map",
           concat("holds ", nf4->table[i], " at [", i, "]; every value must be finite"));
  }
  const int64_t num_blocks = divide_up(n_ * k_, nf4->block);
  if (checkpoint.find(layer_ + ".weight.nested_absmax") == nullptr) {
    nf4->absmax = &add("weight.absmax", {DType::f32}, {{num_blocks}});
  } else {
    nf4->absmax = &add("weight.absmax", {DType::u8}, {{num_blocks}});
    nf4->nested_block = fields.whole("nested_blocksize", 1, kMaxBlock);
    nf4->offset = static_cast<float>(fields.number("nested_offset", -1e30, 1e30));
    nf4->nested_table =
        read_floats(add("weight.nested_quant_map", {DType::f32}, {{256}}), {.num_cols = 256});
    nf4->nested_absmax =
        &add("weight.nested_absmax", {DType::f32}, {{divide_up(num_blocks, nf4->nested_block)}});
  }
  nf4_ = std::move(nf4);
}

void StoredLayer::read_nf4(int64_t row, int64_t count, std::span<float> values) const {
  // Whole bytes: an element more on either side where rows are odd.
  const int64_t first = row * k_ / 2 * 2, last = divide_up((row + count) * k_, 2) * 2;
  const int64_t first_block = first / nf4_->block;
  const std::vector<float> absmax =
      read_absmax(first_block, divide_up(last, nf4_->block) - first_block);
  const std::vector<uint8_t> bytes =
      read_strip<uint8_t>(*codes_, {.row = first / 2, .num_rows = (last - first) / 2});
  std::vector<float> whole(static_cast<size_t>(last - first));
  decode_nf4(bytes, nf4_->table, absmax, nf4_->block, first, whole);
  std::copy_n(whole.begin() + (row * k_ - first), values.size(), values.begin());
}

std::vector<float> StoredLayer::read_absmax(int64_t first_block, int64_t num_blocks) const {
  if (nf4_->nested_absmax == nullptr) {
    return read_floats(*nf4_->absmax, {.col = first_block, .num_cols = num_blocks});
  }
  // From the start of a nested block on.
  const int64_t by = nf4_->nested_block, start = first_block / by * by;
  const int64_t wanted = first_block + num_blocks - start;
  const std::vector<uint8_t> codes =
      read_strip<uint8_t>(*nf4_->absmax, {.col = start, .num_cols = wanted});
  const std::vector<float> scale =
      read_floats(*nf4_->nested_absmax, {.col = start / by, .num_cols = divide_up(wanted, by)});
  std::vector<float> all(codes.size());
  decode_nested(codes, nf4_->nested_table, scale, by, nf4_->offset, all);
  return {all.begin() + (first_block - start), all.end()};
}

// Rows are whole groups (form_of), and a block is some of them in a row.
void StoredLayer::decode_nf4_codes(int64_t row, DecodedRows& rows) const {
  const int64_t block = nf4_->block, group = rows.group, count = rows.num_rows;
  if (block % group != 0) {
    refuse(kNf4State, concat("says blocksize ", block, "; codes are kept in groups of ", group,
                             ", which must divide it: load the model with weights 'plain'"));
  }
  const Strip strip{.row = row * k_ / 2, .num_rows = count * k_ / 2};
  unpack_nibbles(read_strip<uint8_t>(*codes_, strip), FirstNibble::high, rows.codes.data());
  const int64_t first = row * k_ / block;
  const std::vector<float> absmax =
      read_absmax(first, divide_up((row + count) * k_, block) - first);
  for (int64_t i = row * k_; i < (row + count) * k_; i += group) {
    rows.scale.push_back(absmax[static_cast<size_t>(i / block - first)]);
  }
  rows.table = nf4_->table;
}

void StoredLayer::decode_mxfp4(int64_t row, DecodedRows& rows) const {
  const int64_t count = rows.num_rows, groups = rows.num_groups;
  const Strip strip{.row = row, .num_rows = count, .num_cols = k_ / 2};
  unpack_nibbles(read_strip<uint8_t>(*codes_, strip), FirstNibble::low, rows.codes.data());
  for (const uint8_t code :
       read_strip<uint8_t>(*scale_, {.row = row, .num_rows = count, .num_cols = groups})) {
    const auto at = static_cast<int64_t>(rows.scale.size());
    if (code == kE8m0Nan) {
      refuse("weight_scale", concat("holds ", int{code}, " at [", row + at / groups, ", ",
                                    at % groups, "], the NaN of e8m0; the file is damaged, or its ",
                                    "scales are of another type"));
    }
    rows.scale.push_back(e8m0_value(code));
  }
  rows.table = table();
}

std::vector<float> StoredLayer::table() const {
  if (nf4_ != nullptr) return nf4_->table;
  return {kMxfp4Values.begin(), kMxfp4Values.end()};
}

void StoredLayer::read_blocks(int64_t row, int64_t count, std::vector<std::byte>& blocks) const {
  const BlockType& type = block_type(format_.block_type);
  const int64_t row_bytes = k_ / type.num_elements * type.num_bytes;
  blocks.resize(static_cast<size_t>(count * row_bytes));
  if (format_.head_rows == 0) {
    return codes_->file->read(codes_->begin + row * row_bytes, blocks);
  }
  const int64_t size = format_.head_rows, half = size / 2;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t within = (row + i) % size;
    const int64_t stored = row + i - within + within % half * 2 + within / half;
    codes_->file->read(codes_->begin + stored * row_bytes,
                       std::span(blocks).subspan(static_cast<size_t>(i * row_bytes),
                                                 static_cast<size_t>(row_bytes)));
  }
}

void StoredLayer::read_values(int64_t row, int64_t col, const TensorView& to) const {
  const int64_t count = to.size(0), width = to.size(1);
  if (format_.storage != Storage::nf4 && format_.storage != Storage::gguf) {
    return dequantize(decode(row, count), 0, col, to);
  }
  std::vector<float> values(static_cast<size_t>(count * k_));
  if (format_.storage == Storage::nf4) {
    read_nf4(row, count, values);
  } else {
    std::vector<std::byte> blocks;
    read_blocks(row, count, blocks);
    decode_values(block_type(format_.block_type), blocks, values);
  }
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(values.begin() + i * k_ + col, width, to.as<float>() + i * width);
  }
}

}  // namespace tessera::model
