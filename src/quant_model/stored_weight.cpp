// Codes, scales and zero points to the tensors of a file.
// SPDX-License-Identifier: MIT
//
// For a weight [n, k] with groups of g and b bits, 32 / b codes in a word, the first in its lowest
// bits; codes and zero points count from 0, which is -2^(b - 1) of a symmetric code:
//
//   compressed-tensors  weight_packed [n, k * b / 32] along k; weight_scale [n, k / g];
//                       weight_zero_point [n * b / 32, k / g] along n; weight_shape; weight_g_idx
//   or, not packed      weight [n, k]; weight_scale [n, 1] or [n / 128, k / 128]
//   GPTQ                qweight [k * b / 32, n] along k; scales [k / g, n]; g_idx [k];
//                       qzeros [k / g, n * b / 32] along n, less 1 where symmetric (its version 1)
#include "quant_model/stored_weight.h"

#include <algorithm>
#include <cstring>

#include "core/parallel.h"
#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

using Matrix = std::vector<uint8_t>;  // codes from 0, row by row

int bits_of(const QuantFormat& format) { return format.codes == CodeFormat::int4 ? 4 : 8; }
int middle_of(const QuantFormat& format) { return 1 << (bits_of(format) - 1); }

FileTensor raw_tensor(std::string name, std::string_view type, std::vector<int64_t> shape,
                      const void* data, size_t num_bytes) {
  FileTensor tensor{std::move(name), type, std::move(shape), std::vector<std::byte>(num_bytes)};
  if (num_bytes > 0) std::memcpy(tensor.bytes.data(), data, num_bytes);
  return tensor;
}

// A tensor whose bytes are those of `values`.
FileTensor lent_tensor(std::string name, std::string_view type, std::vector<int64_t> shape,
                       const Tensor& values) {
  FileTensor tensor{std::move(name), type, std::move(shape)};
  tensor.lent = {values.view().as<const std::byte>(), static_cast<size_t>(values.size_bytes())};
  return tensor;
}

FileTensor words_tensor(std::string name, std::vector<int64_t> shape,
                        const std::vector<uint32_t>& words) {
  return raw_tensor(std::move(name), "I32", std::move(shape), words.data(), 4 * words.size());
}

// Rows of `cols` codes into words along a row; the last word of a row may be incomplete.
std::vector<uint32_t> pack_rows(const Matrix& codes, int64_t rows, int64_t cols, int bits) {
  const int64_t per_word = 32 / bits, width = (cols + per_word - 1) / per_word;
  std::vector<uint32_t> words(static_cast<size_t>(rows * width));
  parallel_for(rows, cols, [&](int64_t row) {
    for (int64_t col = 0; col < cols; ++col) {
      const auto code = static_cast<uint32_t>(codes[static_cast<size_t>(row * cols + col)]);
      words[static_cast<size_t>(row * width + col / per_word)] |= code << bits * (col % per_word);
    }
  });
  return words;
}

template <class T>
std::vector<T> transposed(const std::vector<T>& matrix, int64_t rows, int64_t cols) {
  std::vector<T> out(matrix.size());
  parallel_for(cols, rows, [&](int64_t col) {
    for (int64_t row = 0; row < rows; ++row) {
      out[static_cast<size_t>(col * rows + row)] = matrix[static_cast<size_t>(row * cols + col)];
    }
  });
  return out;
}

// Codes from 0, columns in the order of the original weight.
Matrix codes_of(const QuantizedWeight& weight, const QuantFormat& format) {
  const TensorView& values = weight.values;
  const int64_t n = values.size(0), k = values.size(1);
  const int add = format.has_zero_points() ? 0 : middle_of(format);
  const int32_t* order = weight.order.view().rank > 0 ? weight.order.view().as<int32_t>() : nullptr;
  Matrix codes(static_cast<size_t>(n * k));
  parallel_for(n, k, [&](int64_t row) {
    uint8_t* to = codes.data() + row * k;
    for (int64_t i = 0; i < k; ++i) {
      int code = 0;
      if (values.dtype == DType::i4) {
        code = values.as<uint8_t>()[(row * k + i) / 2] >> 4 * (i % 2) & 15;
        if (!format.has_zero_points() && code > 7) code -= 16;
      } else {
        code = values.as<int8_t>()[row * k + i];
      }
      to[order == nullptr ? i : order[i]] = static_cast<uint8_t>(code + add);
    }
  });
  return codes;
}

// The group of each column of the original weight.
std::vector<int32_t> groups_of(const QuantizedWeight& weight) {
  const int64_t k = weight.values.view().size(1);
  std::vector<int32_t> groups(static_cast<size_t>(k));
  for (int64_t i = 0; i < k; ++i) {
    const int64_t col = weight.order.view().rank > 0 ? weight.order.view().as<int32_t>()[i] : i;
    groups[static_cast<size_t>(col)] = static_cast<int32_t>(i / weight.group);
  }
  return groups;
}

Matrix zeros_of(const QuantizedWeight& weight, const QuantFormat& format) {
  const int64_t count = weight.scale.view().num_elements();
  if (!format.has_zero_points()) {
    return Matrix(static_cast<size_t>(count), static_cast<uint8_t>(middle_of(format)));
  }
  const auto* zeros = weight.zero_point.view().as<int32_t>();
  return Matrix(zeros, zeros + count);
}

std::vector<FileTensor> to_gptq(const std::string& module, const QuantizedWeight& weight,
                                const StoredForm& form) {
  const int64_t n = weight.values.view().size(0), k = weight.values.view().size(1);
  const int64_t groups = weight.scale.view().size(1);
  const int bits = bits_of(form.format);
  const int64_t per_word = 32 / bits;
  if (n % per_word != 0 || k % per_word != 0) {
    fail(concat(module, " is [", n, ", ", k, "]; GPTQ files need multiples of ", per_word,
                ": use --format compressed-tensors or --keep it"));
  }
  std::vector<FileTensor> tensors;
  // Packed along k, so rows of the transpose are packed and transposed back.
  const auto words = pack_rows(codes_of(weight, form.format), n, k, bits);
  tensors.push_back(
      words_tensor(module + ".qweight", {k / per_word, n}, transposed(words, n, k / per_word)));
  Matrix zeros = transposed(zeros_of(weight, form.format), n, groups);
  if (!form.format.has_zero_points()) {
    for (uint8_t& zero : zeros) --zero;
  }
  tensors.push_back(
      words_tensor(module + ".qzeros", {groups, n / per_word}, pack_rows(zeros, groups, n, bits)));
  const auto* scale = weight.scale.view().as<float>();
  std::vector<float> scales = transposed(std::vector<float>(scale, scale + n * groups), n, groups);
  tensors.push_back(plain_tensor(module + ".scales",
                                 TensorView::contiguous(scales.data(), DType::f32, {groups, n}),
                                 form.format.scale_dtype, {groups, n}));
  const std::vector<int32_t> of = groups_of(weight);
  tensors.push_back(raw_tensor(module + ".g_idx", "I32", {k}, of.data(), 4 * of.size()));
  return tensors;
}

// Codes along a row in words: an i4 tensor and one of i8 have them in that order already, and a
// symmetric code from 0 differs from its bits in the highest.
FileTensor packed_rows(const std::string& name, const QuantizedWeight& weight,
                       const QuantFormat& format) {
  const TensorView& values = weight.values;
  const int64_t n = values.size(0), k = values.size(1), per_word = 32 / bits_of(format);
  const std::vector<int64_t> shape = {n, (k + per_word - 1) / per_word};
  if (k % per_word != 0 || weight.order.view().rank > 0) {
    return words_tensor(name, shape, pack_rows(codes_of(weight, format), n, k, bits_of(format)));
  }
  if (format.has_zero_points()) return lent_tensor(name, "I32", shape, weight.values);
  FileTensor tensor =
      raw_tensor(name, "I32", shape, values.data, static_cast<size_t>(weight.values.size_bytes()));
  const std::byte flip{static_cast<uint8_t>(bits_of(format) == 4 ? 0x88 : 0x80)};
  for (std::byte& byte : tensor.bytes) byte ^= flip;
  return tensor;
}

std::vector<FileTensor> to_compressed(const std::string& module, const QuantizedWeight& weight,
                                      const StoredForm& form) {
  const TensorView& values = weight.values;
  const int64_t n = values.size(0), k = values.size(1);
  const TensorView& scale = weight.scale;
  const int bits = bits_of(form.format);
  std::vector<FileTensor> tensors;
  const bool is_packed = form.format.codes == CodeFormat::int4 ||
                         (form.format.codes == CodeFormat::int8 && form.packs_int8);
  if (!is_packed) {
    tensors.push_back(
        lent_tensor(module + ".weight", stored_type(values.dtype), {n, k}, weight.values));
  } else {
    tensors.push_back(packed_rows(module + ".weight_packed", weight, form.format));
    const int64_t shape[] = {n, k};
    tensors.push_back(raw_tensor(module + ".weight_shape", "I64", {2}, shape, sizeof(shape)));
  }
  tensors.push_back(plain_tensor(module + ".weight_scale", scale, form.format.scale_dtype,
                                 {scale.size(0), scale.size(1)}));
  if (form.format.has_zero_points()) {
    const int64_t groups = scale.size(1), per_word = 32 / bits;
    const Matrix zeros = transposed(zeros_of(weight, form.format), n, groups);
    const int64_t width = (n + per_word - 1) / per_word;
    tensors.push_back(words_tensor(module + ".weight_zero_point", {width, groups},
                                   transposed(pack_rows(zeros, groups, n, bits), groups, width)));
  }
  if (weight.order.view().rank > 0) {
    const std::vector<int32_t> of = groups_of(weight);
    tensors.push_back(raw_tensor(module + ".weight_g_idx", "I32", {k}, of.data(), 4 * of.size()));
  }
  return tensors;
}

}  // namespace

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i8: return "I8";
    case DType::e4m3: return "F8_E4M3";
    default: fail(concat("safetensors: ", name(dtype), " is not written"));
  }
}

FileTensor scale_tensor(std::string name, float scale) {
  return raw_tensor(std::move(name), "F32", {1}, &scale, sizeof(scale));
}

FileTensor plain_tensor(std::string name, const TensorView& values, DType dtype,
                        std::vector<int64_t> shape) {
  const int64_t count = values.num_elements();
  const Tensor converted(dtype, {count});
  convert(TensorView::contiguous(values.data, values.dtype, {count}), converted);
  return raw_tensor(std::move(name), stored_type(dtype), std::move(shape), converted.view().data,
                    static_cast<size_t>(converted.size_bytes()));
}

std::vector<FileTensor> to_stored(const std::string& module, const QuantizedWeight& weight,
                                  const StoredForm& form) {
  switch (form.files) {
    case FileFormat::gptq: return to_gptq(module, weight, form);
    case FileFormat::compressed_tensors: return to_compressed(module, weight, form);
    case FileFormat::dense: break;
  }
  const Tensor values = dequantize(weight);
  return {plain_tensor(module + ".weight", values, DType::f32,
                       {values.view().size(0), values.view().size(1)})};
}

}  // namespace tessera::quant
