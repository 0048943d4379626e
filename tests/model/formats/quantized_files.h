// Quantised checkpoints written by tests: random codes, packed as each format asks for, by plain
// loops that share nothing with the loader.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tessera/core/convert.h"
#include "tests/model/stored_file.h"

namespace tessera::testing {

// A tensor as bytes.
struct RawTensor {
  std::string name;
  std::string type;  // "I32"
  std::vector<int64_t> shape;
  std::string bytes;
};

template <class T>
RawTensor raw(std::string name, std::string type, std::vector<int64_t> shape,
              const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return {std::move(name), std::move(type), std::move(shape), std::move(bytes)};
}

inline RawTensor& tensor_of(std::vector<RawTensor>& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, &RawTensor::name);
}

inline std::string raw_file(const std::vector<RawTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  for (const RawTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.type},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return stored_file(header.dump(), data);
}

// A weight [n, k]: element (r, c) is (codes[r, c] - zeros[r, g]) * scales[r, g], g = group_of[c].
// Scales are exact in f16. FP8 codes are the bits of the number. With a table the element is
// table[codes[r, c]] * scales[r, g], and scales are powers of two.
struct Quantized {
  int64_t n = 0, k = 0, groups = 1;
  int bits = 4;
  bool is_fp8 = false;
  std::vector<int> codes = {}, zeros = {}, group_of = {};
  std::vector<float> scales = {}, table = {};

  int code(int64_t r, int64_t c) const { return codes[static_cast<size_t>(r * k + c)]; }
  int zero(int64_t r, int64_t g) const { return zeros[static_cast<size_t>(r * groups + g)]; }
  float scale(int64_t r, int64_t g) const { return scales[static_cast<size_t>(r * groups + g)]; }
  float value(int64_t r, int64_t c) const {
    const int64_t g = group_of[static_cast<size_t>(c)];
    float number = is_fp8 ? to_float(E4m3{static_cast<uint8_t>(code(r, c))})
                          : static_cast<float>(code(r, c) - zero(r, g));
    if (!table.empty()) number = table[static_cast<size_t>(code(r, c))];
    return number * scale(r, g);
  }
};

struct QuantizedKind {
  int bits = 4;
  int64_t group = 0;  // 0: all of k
  bool is_symmetric = false;
  bool is_sorted = false;  // act-order: columns of a group lie apart
  bool is_fp8 = false;
  int64_t rows_per_scale = 1;  // 0: one scale for all
  std::vector<float> table = {};
};

// `columns` seeds the order of the columns, so that layers can share it.
inline Quantized random_weight(int64_t n, int64_t k, const QuantizedKind& kind, uint32_t seed,
                               uint32_t columns = 1) {
  std::mt19937 random(seed);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<uint32_t>(limit));
  };
  const int64_t group = kind.group > 0 ? kind.group : k;
  Quantized w{
      .n = n, .k = k, .groups = (k + group - 1) / group, .bits = kind.bits, .is_fp8 = kind.is_fp8};
  w.table = kind.table;
  const int levels = 1 << kind.bits;
  for (int64_t i = 0; i < n * k; ++i) {
    // FP8: magnitudes below 4, so that the model stays finite; both signs.
    w.codes.push_back(kind.is_fp8 ? below(72) + 128 * below(2) : below(levels));
  }
  const float unit = kind.is_fp8 ? 1.0f / 256 : kind.bits == 4 ? 1.0f / 1024 : 1.0f / 16384;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t g = 0; g < w.groups; ++g) {
      const int64_t by = kind.rows_per_scale == 0 ? n : kind.rows_per_scale;
      const bool is_first = r % by == 0;
      w.zeros.push_back(kind.is_symmetric ? levels / 2 : 1 + below(levels - 1));
      float next = static_cast<float>(1 + below(15)) * unit;
      if (!kind.table.empty()) next = static_cast<float>(1 << below(4)) / 512;
      w.scales.push_back(is_first ? next : w.scales[static_cast<size_t>((r - 1) * w.groups + g)]);
    }
  }
  for (int64_t c = 0; c < k; ++c) w.group_of.push_back(static_cast<int>(c / group));
  if (kind.is_sorted) {
    std::mt19937 shuffle(columns);
    for (size_t i = w.group_of.size() - 1; i > 0; --i) {
      std::swap(w.group_of[i], w.group_of[shuffle() % (i + 1)]);
    }
  }
  return w;
}

inline std::vector<uint16_t> as_halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves;
  for (const float value : values) halves.push_back(from_float<F16>(value).bits);
  return halves;
}

// Scales and others as [groups, n].
template <class T>
std::vector<T> turned(const std::vector<T>& from, int64_t rows, int64_t cols) {
  std::vector<T> to;
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) to.push_back(from[static_cast<size_t>(r * cols + c)]);
  }
  return to;
}

inline void put_code(std::vector<uint32_t>& words, int64_t word, int64_t place, int bits,
                     int code) {
  words[static_cast<size_t>(word)] |= static_cast<uint32_t>(code)
                                      << (static_cast<int64_t>(bits) * place);
}

inline void add_gptq(std::vector<RawTensor>& file, const std::string& layer, const Quantized& w,
                     bool is_v2) {
  const int64_t per = 32 / w.bits;
  std::vector<uint32_t> words(static_cast<size_t>(w.k / per * w.n));
  std::vector<uint32_t> zeros(static_cast<size_t>(w.groups * w.n / per));
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      put_code(words, c / per * w.n + r, c % per, w.bits, w.code(r, c));
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      put_code(zeros, g * (w.n / per) + r / per, r % per, w.bits, w.zero(r, g) - (is_v2 ? 0 : 1));
    }
  }
  std::vector<int32_t> group_of(w.group_of.begin(), w.group_of.end());
  file.push_back(raw(layer + ".qweight", "I32", {w.k / per, w.n}, words));
  file.push_back(raw(layer + ".qzeros", "I32", {w.groups, w.n / per}, zeros));
  file.push_back(
      raw(layer + ".scales", "F16", {w.groups, w.n}, as_halves(turned(w.scales, w.n, w.groups))));
  file.push_back(raw(layer + ".g_idx", "I32", {w.k}, group_of));
}

inline void add_awq(std::vector<RawTensor>& file, const std::string& layer, const Quantized& w) {
  constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of columns 0 to 7 in a word
  std::vector<uint32_t> words(static_cast<size_t>(w.k * w.n / 8));
  std::vector<uint32_t> zeros(static_cast<size_t>(w.groups * w.n / 8));
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      put_code(words, c * (w.n / 8) + r / 8, kPlace[r % 8], 4, w.code(r, c));
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      put_code(zeros, g * (w.n / 8) + r / 8, kPlace[r % 8], 4, w.zero(r, g));
    }
  }
  file.push_back(raw(layer + ".qweight", "I32", {w.k, w.n / 8}, words));
  file.push_back(raw(layer + ".qzeros", "I32", {w.groups, w.n / 8}, zeros));
  file.push_back(
      raw(layer + ".scales", "F16", {w.groups, w.n}, as_halves(turned(w.scales, w.n, w.groups))));
}

inline void add_packed(std::vector<RawTensor>& file, const std::string& layer, const Quantized& w,
                       const QuantizedKind& kind) {
  const int64_t per = 32 / w.bits, row_words = (w.k + per - 1) / per;
  std::vector<uint32_t> words(static_cast<size_t>(w.n * row_words));
  std::vector<uint32_t> zeros(static_cast<size_t>((w.n + per - 1) / per * w.groups));
  for (int64_t r = 0; r < w.n; ++r) {
    for (int64_t c = 0; c < w.k; ++c) {
      put_code(words, r * row_words + c / per, c % per, w.bits, w.code(r, c));
    }
    for (int64_t g = 0; g < w.groups; ++g) {
      put_code(zeros, r / per * w.groups + g, r % per, w.bits, w.zero(r, g));
    }
  }
  file.push_back(raw(layer + ".weight_packed", "I32", {w.n, row_words}, words));
  file.push_back(raw(layer + ".weight_shape", "I64", {2}, std::vector<int64_t>{w.n, w.k}));
  file.push_back(raw(layer + ".weight_scale", "F16", {w.n, w.groups}, as_halves(w.scales)));
  if (!kind.is_symmetric) {
    file.push_back(raw(layer + ".weight_zero_point", "I32",
                       {static_cast<int64_t>(zeros.size()) / w.groups, w.groups}, zeros));
  }
  if (kind.is_sorted) {
    file.push_back(raw(layer + ".weight_g_idx", "I32", {w.k},
                       std::vector<int32_t>(w.group_of.begin(), w.group_of.end())));
  }
}

// Two codes in a byte, the first in the low nibble; scales are exponents above -127.
inline void add_mxfp4(std::vector<RawTensor>& file, const std::string& layer, const Quantized& w) {
  std::vector<uint8_t> bytes, exponents;
  for (int64_t i = 0; i < w.n * w.k; i += 2) {
    bytes.push_back(static_cast<uint8_t>(w.codes[static_cast<size_t>(i)] +
                                         16 * w.codes[static_cast<size_t>(i + 1)]));
  }
  for (const float scale : w.scales) {
    exponents.push_back(static_cast<uint8_t>(127 + std::lround(std::log2(scale))));
  }
  file.push_back(raw(layer + ".weight_packed", "U8", {w.n, w.k / 2}, bytes));
  file.push_back(raw(layer + ".weight_scale", "U8", {w.n, w.groups}, exponents));
}

// A byte each: int8 around 0, or FP8; `suffix` names the scales.
inline void add_bytes(std::vector<RawTensor>& file, const std::string& layer, const Quantized& w,
                      const QuantizedKind& kind, const std::string& suffix) {
  std::vector<uint8_t> bytes;
  for (const int code : w.codes)
    bytes.push_back(static_cast<uint8_t>(w.is_fp8 ? code : code - 128));
  file.push_back(raw(layer + ".weight", w.is_fp8 ? "F8_E4M3" : "I8", {w.n, w.k}, bytes));
  const int64_t by = kind.rows_per_scale == 0 ? w.n : kind.rows_per_scale;
  std::vector<float> scales;
  for (int64_t r = 0; r < w.n; r += by) {
    for (int64_t g = 0; g < w.groups; ++g) scales.push_back(w.scale(r, g));
  }
  std::vector<int64_t> shape = {(w.n + by - 1) / by, w.groups};
  if (kind.rows_per_scale == 0) shape = {1};
  file.push_back(raw(layer + "." + suffix, "F32", shape, scales));
}

}  // namespace tessera::testing
