// Layers of GPTQ, AWQ, compressed-tensors and fp8 checkpoints: which tensors they consist of, and
// their rows. Those of GGUF, bitsandbytes and MXFP4 are read in block_layers.cpp.
// SPDX-License-Identifier: MIT
#include "model/formats/stored_layer.h"

#include <algorithm>
#include <cmath>

#include "core/text.h"
#include "model/formats/gguf_blocks.h"
#include "model/formats/tensor_strip.h"
#include "model/formats/unpack.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

std::string describe(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += concat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

const std::initializer_list<DType> kFloatTypes = {DType::f32, DType::f16, DType::bf16};

// [groups, rows] to [rows, groups].
template <class To, class From>
std::vector<To> transposed(const std::vector<From>& from, int64_t groups, int64_t rows) {
  std::vector<To> to(from.size());
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) {
      to[static_cast<size_t>(r * groups + g)] =
          static_cast<To>(from[static_cast<size_t>(g * rows + r)]);
    }
  }
  return to;
}

}  // namespace

StoredLayer::StoredLayer(const Checkpoint& checkpoint, std::string layer,
                         const StoredFormat& format, int64_t n, int64_t k)
    : checkpoint_(&checkpoint), layer_(std::move(layer)), format_(format), n_(n), k_(k) {
  if (format.storage == Storage::gguf) {
    find_gguf(checkpoint);
  } else if (format.storage == Storage::nf4) {
    find_nf4(checkpoint);
  } else {
    find_tensors(checkpoint);
  }
}

void StoredLayer::refuse(std::string_view tensor, std::string_view why) const {
  fail(concat("checkpoint: tensor '", layer_, ".", tensor, "' ", why));
}

int64_t StoredLayer::num_groups() const {
  return format_.group > 0 ? divide_up(k_, format_.group) : 1;
}

const StoredTensor& StoredLayer::add(std::string_view suffix, std::initializer_list<DType> types,
                                     const std::vector<std::vector<int64_t>>& shapes) {
  std::string full = concat(layer_, ".", suffix);
  const StoredTensor* tensor = checkpoint_->find(full);
  if (tensor == nullptr) {
    refuse(suffix, concat(describe(shapes.front()), " is missing; config.json says that the layer ",
                          "is stored as ", to_string(format_)));
  }
  if (std::ranges::find(shapes, tensor->shape) == shapes.end()) {
    refuse(suffix, concat("has shape ", describe(tensor->shape), "; a weight [", n_, ", ", k_,
                          "] stored as ", to_string(format_), " needs ", describe(shapes.front())));
  }
  const DType dtype = loadable_dtype(*tensor);
  if (std::find(types.begin(), types.end(), dtype) == types.end()) {
    refuse(suffix, concat("is ", tensor->type, "; stored as ", to_string(format_), " it must be ",
                          name(*types.begin())));
  }
  names_.push_back(std::move(full));
  return *tensor;
}

void StoredLayer::find_tensors(const Checkpoint& checkpoint) {
  const int64_t per_word = format_.bits > 0 ? 32 / format_.bits : 1, groups = num_groups();
  const auto need_whole_words = [&](int64_t size, std::string_view what) {
    if (size % per_word == 0) return;
    refuse("qweight", concat("holds ", per_word, " codes in a word, and the layer has ", size, " ",
                             what, ", which are not whole words"));
  };
  switch (format_.storage) {
    case Storage::gptq:
    case Storage::gptq_v2:
      need_whole_words(n_, "outputs");
      need_whole_words(k_, "inputs");
      codes_ = &add("qweight", {DType::i32}, {{k_ / per_word, n_}});
      zeros_ = &add("qzeros", {DType::i32}, {{groups, n_ / per_word}});
      scale_ = &add(scale_name(format_), kFloatTypes, {{groups, n_}});
      if (format_.has_order || checkpoint.find(layer_ + ".g_idx") != nullptr) {
        groups_of_ = &add("g_idx", {DType::i32}, {{k_}});
      }
      break;
    case Storage::awq:
      need_whole_words(n_, "outputs");
      codes_ = &add("qweight", {DType::i32}, {{k_, n_ / per_word}});
      zeros_ = &add("qzeros", {DType::i32}, {{groups, n_ / per_word}});
      scale_ = &add(scale_name(format_), kFloatTypes, {{groups, n_}});
      break;
    case Storage::packed:
      codes_ = &add("weight_packed", {DType::i32}, {{n_, divide_up(k_, per_word)}});
      add("weight_shape", {DType::i64, DType::i32}, {{2}});
      scale_ = &add(scale_name(format_), kFloatTypes, {{n_, groups}});
      if (format_.has_zero_points) {
        zeros_ = &add("weight_zero_point", {DType::i32}, {{divide_up(n_, per_word), groups}});
      }
      if (format_.has_order) groups_of_ = &add("weight_g_idx", {DType::i32}, {{k_}});
      break;
    case Storage::mxfp4:
      if (k_ % 2 != 0) {
        refuse("weight_packed", concat("holds two codes in a byte, and the layer has ", k_,
                                       " inputs, which are not whole bytes"));
      }
      codes_ = &add("weight_packed", {DType::u8}, {{n_, k_ / 2}});
      scale_ = &add("weight_scale", {DType::u8}, {{n_, groups}});
      break;
    default: {
      codes_ = &add("weight", {format_.codes}, {{n_, k_}});
      std::vector<std::vector<int64_t>> shapes = {{n_, groups}};
      if (format_.rows_per_scale == 0) shapes = {{1}, {}, {1, 1}};
      if (format_.rows_per_scale > 1) shapes = {{divide_up(n_, format_.rows_per_scale), groups}};
      if (format_.rows_per_scale == 1 && groups == 1) shapes.push_back({n_});
      scale_ = &add(scale_name(format_), kFloatTypes, shapes);
      if (format_.has_zero_points) zeros_ = &add("weight_zero_point", {DType::i8}, shapes);
      if (format_.has_input_scale) {
        input_scale_ = &add("input_scale", kFloatTypes, {{1}, {}, {1, 1}});
      }
      break;
    }
  }
}

std::vector<int32_t> StoredLayer::groups_of_columns() const {
  if (groups_of_ == nullptr) return {};
  std::vector<int32_t> groups = read_strip<int32_t>(*groups_of_, {.num_cols = k_});
  const int64_t size = format_.group > 0 ? format_.group : k_;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i] < 0 || groups[i] >= num_groups()) {
      fail(concat("checkpoint: tensor '", groups_of_->name, "' holds ", groups[i], " at [", i,
                  "]; the layer has ", num_groups(), " groups"));
    }
    if (!format_.has_order && groups[i] != static_cast<int64_t>(i) / size) {
      fail(concat("checkpoint: tensor '", groups_of_->name, "' holds ", groups[i], " at [", i,
                  "], and without desc_act it must be ", static_cast<int64_t>(i) / size,
                  "; set desc_act in config.json"));
    }
  }
  return groups;
}

float StoredLayer::input_scale() const {
  const float scale = read_floats(*input_scale_, {.num_cols = 1}).front();
  if (!(scale > 0.0f) || std::isinf(scale)) {
    refuse("input_scale", concat("is ", scale, "; the scale of inputs must be positive"));
  }
  return scale;
}

std::vector<int32_t> StoredLayer::order() const {
  return sorted_columns(groups_of_columns(), format_.group, layer_);
}

// GPTQ and AWQ: words, scales and zero points of a strip of columns, as the file has outputs.
void StoredLayer::decode_words(int64_t row, DecodedRows& rows) const {
  const bool is_awq = format_.storage == Storage::awq;
  const int64_t per_word = 32 / format_.bits, count = rows.num_rows, groups = rows.num_groups;
  const Strip zero_strip{.num_rows = groups, .col = row / per_word, .num_cols = count / per_word};
  const std::vector<uint32_t> zero_words = read_strip<uint32_t>(*zeros_, zero_strip);
  rows.zero.resize(static_cast<size_t>(count * groups));
  if (is_awq) {
    const Strip strip{.num_rows = k_, .col = row / per_word, .num_cols = count / per_word};
    unpack_awq(read_strip<uint32_t>(*codes_, strip), k_, count, rows.codes.data());
    unpack_awq(zero_words, groups, count, rows.zero.data());
  } else {
    const Strip strip{.num_rows = k_ / per_word, .col = row, .num_cols = count};
    unpack_columns(read_strip<uint32_t>(*codes_, strip), format_.bits, k_, count,
                   rows.codes.data());
    std::vector<int16_t> zeros(rows.zero.size());
    unpack_rows(zero_words, format_.bits, groups, count, zeros.data());
    rows.zero = transposed<int16_t>(zeros, groups, count);
  }
  if (format_.storage == Storage::gptq) {
    const auto most = static_cast<int16_t>((1 << format_.bits) - 1);
    for (int16_t& zero : rows.zero) {
      if (zero == most) {
        refuse("qzeros", concat("holds ", most, ", a zero point of ", most + 1,
                                " or of 0, "
                                "depending on the reader; store the layer as gptq_v2"));
      }
      ++zero;
    }
  }
  rows.scale = transposed<float>(
      read_floats(*scale_, {.num_rows = groups, .col = row, .num_cols = count}), groups, count);
  rows.group_of = groups_of_columns();
}

void StoredLayer::decode_packed(int64_t row, DecodedRows& rows) const {
  const int64_t per_word = 32 / format_.bits, count = rows.num_rows, groups = rows.num_groups;
  const Strip strip{.row = row, .num_rows = count, .num_cols = divide_up(k_, per_word)};
  unpack_rows(read_strip<uint32_t>(*codes_, strip), format_.bits, count, k_, rows.codes.data());
  rows.scale = read_floats(*scale_, {.row = row, .num_rows = count, .num_cols = groups});
  rows.zero.assign(static_cast<size_t>(count * groups),
                   static_cast<int16_t>(1 << (format_.bits - 1)));
  if (zeros_ != nullptr) {
    const Strip zero_strip{
        .row = row / per_word, .num_rows = divide_up(count, per_word), .num_cols = groups};
    std::vector<int16_t> zeros(rows.zero.size());
    unpack_columns(read_strip<uint32_t>(*zeros_, zero_strip), format_.bits, count, groups,
                   zeros.data());
    rows.zero = transposed<int16_t>(zeros, groups, count);
  }
  rows.group_of = groups_of_columns();
}

void StoredLayer::decode_bytes(int64_t row, DecodedRows& rows) const {
  const int64_t count = rows.num_rows, groups = rows.num_groups;
  rows.is_fp8 = format_.codes == DType::e4m3;
  const std::vector<uint8_t> bytes =
      read_strip<uint8_t>(*codes_, {.row = row, .num_rows = count, .num_cols = k_});
  // Integers with a zero point become unsigned ones.
  const int lift = zeros_ != nullptr ? 128 : 0;
  std::ranges::transform(bytes, rows.codes.begin(), [&](uint8_t byte) {
    return static_cast<int16_t>(rows.is_fp8 ? byte : static_cast<int8_t>(byte) + lift);
  });
  const int64_t by = format_.rows_per_scale;
  const int64_t first = by == 0 ? 0 : row / by;
  const int64_t last = by == 0 ? 1 : divide_up(row + count, by);
  const Strip strip{.row = first, .num_rows = last - first, .num_cols = groups};
  // A vector [n] is a column here.
  const bool is_column = scale_->shape.size() == 1 && by == 1;
  const Strip where = is_column ? Strip{.col = row, .num_cols = count} : strip;
  const std::vector<float> scale = read_floats(*scale_, where);
  std::vector<int8_t> zeros;
  if (zeros_ != nullptr) zeros = read_strip<int8_t>(*zeros_, where);
  if (zeros_ != nullptr) rows.zero.resize(static_cast<size_t>(count * groups));
  rows.scale.resize(static_cast<size_t>(count * groups));
  for (int64_t r = 0; r < count; ++r) {
    const int64_t from = by == 0 ? 0 : (row + r) / by - first;
    for (int64_t g = 0; g < groups; ++g) {
      const auto source = static_cast<size_t>(from * groups + g);
      const auto target = static_cast<size_t>(r * groups + g);
      rows.scale[target] = scale[source];
      if (zeros_ != nullptr) rows.zero[target] = static_cast<int16_t>(zeros[source] + lift);
    }
  }
}

DecodedRows StoredLayer::decode(int64_t row, int64_t count) const {
  // Zero points of several rows share a word.
  constexpr int64_t kAligned = 8;
  const bool is_aligned = row % kAligned == 0 && (count % kAligned == 0 || row + count == n_);
  const int64_t first = is_aligned ? row : row / kAligned * kAligned;
  const int64_t last = is_aligned ? row + count : std::min(n_, divide_up(row + count, 8) * 8);
  DecodedRows rows{
      .num_rows = last - first, .num_cols = k_, .num_groups = num_groups(), .group = format_.group};
  rows.codes.resize(static_cast<size_t>(rows.num_rows * k_));
  switch (format_.storage) {
    case Storage::gguf: {
      std::vector<std::byte> blocks;
      read_blocks(first, rows.num_rows, blocks);
      decode_codes(block_type(format_.block_type), blocks, rows);
      break;
    }
    case Storage::nf4: decode_nf4_codes(first, rows); break;
    case Storage::mxfp4: decode_mxfp4(first, rows); break;
    case Storage::packed: decode_packed(first, rows); break;
    case Storage::bytes: decode_bytes(first, rows); break;
    default: decode_words(first, rows); break;
  }
  if (is_aligned) return rows;
  // The rows that were asked for alone.
  const auto cut = [&](auto& values, int64_t width) {
    if (values.empty()) return;
    const auto begin = values.begin() + (row - first) * width;
    values = std::remove_cvref_t<decltype(values)>(begin, begin + count * width);
  };
  cut(rows.codes, k_);
  cut(rows.scale, rows.num_groups);
  cut(rows.zero, rows.num_groups);
  rows.num_rows = count;
  return rows;
}

}  // namespace tessera::model
