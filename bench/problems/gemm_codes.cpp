// Products of two quantised operands.
// SPDX-License-Identifier: MIT
#include "bench/problems/gemm_codes.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "tessera/ops/activation.h"

namespace tessera::bench {
namespace {

constexpr int64_t kGroup = 128;
// Codes of a value of 1, the deviation: far from the largest, if the type allows.
float deviation_in_codes(DType dtype) { return dtype == DType::i4 ? 3.0f : 30.0f; }
constexpr int64_t kZeroPoint = 3;  // of u8 codes of integer problems, which start at 0

// What shares a scale, as the options say: groups of 128, and in b also 64 and 32, of a row.
enum class Sharing : int64_t { all, row, group, row_group, row_group_64, row_group_32 };

Sharing sharing_of(const Shape& shape, std::string_view name) {
  return static_cast<Sharing>(value_of(shape, name, 1));
}

// Elements of k under one scale of b, where it changes along k.
int64_t group_of(Sharing sharing) {
  return sharing == Sharing::row_group_64 ? 64 : sharing == Sharing::row_group_32 ? 32 : kGroup;
}

std::vector<int64_t> a_scale_shape(Sharing sharing, int64_t m, int64_t k) {
  if (sharing == Sharing::all) return {1};
  if (sharing == Sharing::row) return {m};
  return {m, k / kGroup};
}
std::vector<int64_t> b_scale_shape(Sharing sharing, int64_t n, int64_t k) {
  if (sharing == Sharing::all) return {1};
  if (sharing == Sharing::row) return {n};
  if (sharing == Sharing::group) return {(n + kGroup - 1) / kGroup, k / kGroup};
  return {n, k / group_of(sharing)};
}

// The code of a normal value, in the range of the type.
float code_of(DType dtype, float normal) {
  const float code = deviation_in_codes(dtype) * normal;
  if (dtype == DType::e4m3) return code;
  const float most = dtype == DType::i4 ? 7.0f : 127.0f;
  const float rounded = std::round(std::clamp(code, -most, most));
  return dtype == DType::u8 ? rounded + 127.0f : rounded;
}

void fill_scales(Operand& scales, bool is_normal, float unit, Random random) {
  fill_rows(scales, [&](int64_t r, int64_t c) {
    const int64_t at = r * 65536 + c;
    if (!is_normal) return random.sign(at) > 0 ? 1.0f : 0.5f;
    return unit * (0.75f + 0.5f * static_cast<float>(random.bits(at) >> 40) * 0x1p-24f);
  });
}

// Row by row; after a million elements they repeat, so that large problems fill quickly. Two i4
// share a byte, so they are stored one by one.
template <class Code>
void fill_codes(Operand& operand, const Code& code) {
  if (operand.host.size_bytes() == 0) return;
  const int64_t num_rows = operand.shape[0], num_cols = operand.shape[1];
  if (operand.host.view().dtype == DType::i4) {
    fill_rows(operand, [&](int64_t r, int64_t c) { return code((r * num_cols + c) % 1'000'003); });
    return;
  }
  const RepeatingValues values(operand.host.view().dtype, num_rows * num_cols, code);
  parallel_for(num_rows, num_cols, [&](int64_t row) {
    values.copy(row * num_cols, num_cols, operand.host, operand.offset + row * operand.strides[0]);
  });
}

Shape shape_of(int64_t m, int64_t n, int64_t k, int64_t a_scale, int64_t b_scale,
               std::initializer_list<std::pair<std::string, int64_t>> options = {}) {
  Shape shape{{"m", m}, {"n", n}, {"k", k}, {"a_scale", a_scale}, {"b_scale", b_scale}};
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

}  // namespace

void add_codes(Builder& b, RowKey key, int64_t m, int64_t n, int64_t k, Operand& a) {
  const Shape options{{"a_scale", b.get("a_scale", 1)}, {"b_scale", b.get("b_scale", 1)}};
  const Random a_codes = b.random(), b_codes = b.random();
  const Random a_scales = b.random(), b_scales = b.random();
  const bool has_norm = b.get("norm") != 0;
  if (!has_norm) {
    fill_codes(a, [&](int64_t i) {
      if (b.is_normal()) return code_of(key.in, a_codes.normal(i));
      const auto code = static_cast<float>(a_codes.integer(i, -2, 2));
      return key.in == DType::u8 ? code + kZeroPoint : code;
    });
  }
  const float root = std::sqrt(static_cast<float>(std::max<int64_t>(1, k)));
  const Sharing a_sharing = sharing_of(options, "a_scale");
  Operand& a_scale = b.dense("a_scale", has_norm ? Role::scratch : Role::input, DType::f32,
                             a_scale_shape(a_sharing, m, k));
  a_scale.is_per_row = a_sharing != Sharing::all;
  if (!has_norm) {
    fill_scales(a_scale, b.is_normal(), 1.0f / deviation_in_codes(key.in), a_scales);
  }
  if (key.in == DType::u8) {
    Operand& zero_point = b.dense("a_zero_point", Role::input, DType::i32, {m});
    zero_point.is_per_row = true;
    fill_rows(zero_point, [&](int64_t, int64_t) {
      return b.is_normal() ? 127.0f : static_cast<float>(kZeroPoint);
    });
  }
  Operand& codes = b.dense("b", Role::input, key.weight, {n, k});
  const int64_t spread = std::max<int64_t>(1, k / 700);
  const auto b_code = [&](int64_t i) {
    if (b.is_normal()) return code_of(key.weight, b_codes.normal(i));
    const int64_t drawn = b_codes.integer(i, -spread, spread);
    return static_cast<float>(drawn >= -1 && drawn <= 1 ? drawn : 0);
  };
  fill_codes(codes, b_code);
  fill_scales(b.dense("b_scale", Role::input, DType::f32,
                      b_scale_shape(sharing_of(options, "b_scale"), n, k)),
              b.is_normal(), 1.0f / (deviation_in_codes(key.weight) * root), b_scales);
  if (key.in == DType::u8) {
    const auto* values = codes.host.view().as<int8_t>();
    fill_rows(b.dense("b_row_sums", Role::input, DType::f32, {n}), [&](int64_t r, int64_t) {
      float sum = 0.0f;
      for (int64_t i = 0; i < k; ++i) sum += static_cast<float>(values[r * k + i]);
      return sum;
    });
  }
  if (!has_norm) return;
  const Random x_values = b.random(), weights = b.random();
  Operand& x = b.dense("x", Role::input, value_type_of(key), {m, k});
  x.is_per_row = true;
  const auto x_value = [&](int64_t i) {
    return b.is_normal() ? x_values.normal(i) : x_values.sign(i);
  };
  fill_codes(x, x_value);
  fill_vector(b.dense("norm_weight", Role::input, value_type_of(key), {k}),
              [&](int64_t i) { return b.is_normal() ? 1.0f + 0.25f * weights.normal(i) : 1.0f; });
}

RmsNormArgs norm_of(Fill fill, std::span<const TensorView> views) {
  // Integers: rows of 1 and -1, whose norm is exact without eps.
  return {.x = views[4],
          .weight = views[5],
          .out = views[0],
          .token_scale = views[1],
          .eps = fill == Fill::normal ? 1e-5f : 0.0f};
}

void take_codes(RowKey key, const Shape& shape, std::span<const TensorView> views, size_t& next,
                GemmArgs& args) {
  args.a_scale = views[next++];
  if (key.in == DType::u8) args.a_zero_point = views[next++];
  Weight weight{.values = views[next], .scale = views[next + 1]};
  next += 2;
  if (sharing_of(shape, "b_scale") == Sharing::group) {
    weight.rows_per_scale = kGroup;
    weight.group = kGroup;
  }
  if (key.in == DType::u8) weight.row_sums = views[next++];
  if (value_of(shape, "norm") != 0) next += 2;
  args.b = weight;
  args.sums_in_float = value_of(shape, "sums_in_float") != 0;
}

double codes_error(RowKey key, const Shape& shape, double largest) {
  const auto k = static_cast<double>(value_of(shape, "k"));
  if (value_of(shape, "norm") != 0) {
    // One code of a in 256 may be the next one, at most 1/4 away: sqrt(k / 256) / 4 over sqrt(k),
    // and four deviations of it.
    return codes_error(key, with_value(shape, "norm", 0), largest) + 0x1p-4;
  }
  const auto group = static_cast<double>(group_of(sharing_of(shape, "b_scale")));
  if (key.in != DType::e4m3) return (k / group + 1) * 0x1p-22 * largest;
  // Beside i4 the codes are multiplied as f16 and added in float.
  if (key.weight == DType::i4) return k * 0x1p-21 * std::sqrt(k) * 1.5;
  const bool promotes = value_of(shape, "a_scale", 1) == 2 || value_of(shape, "b_scale", 1) >= 2 ||
                        value_of(shape, "sums_in_float") != 0;
  // sum |a| |b| of products of variance 1 / k, with room for what scales add.
  return (promotes ? 8 : k / 32 + 4) * 0x1p-13 * std::sqrt(k) * 1.5;
}

std::vector<Shape> codes_test_shapes() {
  constexpr int64_t kRelu = 1 + static_cast<int64_t>(Activation::relu);
  constexpr int64_t kSilu = 1 + static_cast<int64_t>(Activation::silu);
  constexpr int64_t kGelu = 1 + static_cast<int64_t>(Activation::gelu);
  std::vector<Shape> shapes = {
      shape_of(0, 64, 128, 1, 1),
      shape_of(1, 8, 128, 1, 1),
      shape_of(1, 512, 1024, 0, 0, {{"static_b", 1}}),
      shape_of(3, 320, 384, 1, 0),
      shape_of(16, 257, 512, 1, 1, {{"static_b", 1}}),
      shape_of(17, 264, 256, 0, 1, {{"bias", 1}}),
      shape_of(64, 1000, 1024, 1, 1),
      shape_of(65, 520, 640, 1, 1, {{"bias", 1}, {"residual", 1}}),
      shape_of(130, 328, 4096, 1, 1),
      shape_of(300, 512, 1024, 1, 1, {{"static_b", 1}}),
      shape_of(385, 5288, 128, 1, 1),
      shape_of(9, 64, 256, 1, 1, {{"gap", 16}, {"gap_out", 8}}),
      shape_of(150, 264, 128, 1, 1, {{"gap", 64}, {"gap_out", 3}}),
      shape_of(4, 256, 128, 1, 1, {{"activation", kGelu}, {"bias", 1}}),
      shape_of(150, 512, 256, 1, 1, {{"activation", kSilu}, {"gated", 1}}),
      shape_of(33, 144, 128, 1, 1, {{"activation", kRelu}, {"gated", 1}, {"bias", 1}}),
      shape_of(2, 257, 512, 1, 1, {{"residual", 1}}),
      shape_of(3, 72, 640, 1, 1, {{"bias", 1}, {"gap", 32}, {"gap_out", 3}}),
      shape_of(4, 512, 512, 1, 1, {{"activation", kSilu}, {"gated", 1}}),
      shape_of(4, 1000, 2048, 0, 1)};
  for (const auto& [a_scale, b_scale] : {std::pair{2, 2}, {2, 1}, {1, 2}, {2, 3}, {0, 3}, {1, 1}}) {
    for (const auto& [m, n, k] : {std::tuple{1, 384, 1024},
                                  {16, 256, 256},
                                  {70, 640, 512},
                                  {200, 300, 384},
                                  {385, 1152, 1280}}) {
      shapes.push_back(shape_of(m, n, k, a_scale, b_scale, {{"sums_in_float", 1}}));
    }
  }
  // A k that ends within a step, of portable kernels alone.
  for (const auto& [m, n, k] : {std::tuple{1, 40, 96}, {7, 130, 224}, {66, 75, 160}}) {
    shapes.push_back(shape_of(m, n, k, 1, 1));
  }
  // Short groups of i4, alone and beside groups of a.
  for (const int64_t b_scale : {4, 5}) {
    shapes.push_back(shape_of(1, 96, 256, 1, b_scale));
    shapes.push_back(shape_of(4, 257, 512, 1, b_scale, {{"bias", 1}}));
    shapes.push_back(shape_of(15, 64, 192, 0, b_scale));
    shapes.push_back(shape_of(70, 200, 1024, 1, b_scale, {{"residual", 1}}));
    shapes.push_back(shape_of(130, 320, 384, 2, b_scale));
    shapes.push_back(shape_of(20, 256, 320, 1, b_scale, {{"activation", kSilu}, {"gated", 1}}));
  }
  shapes.push_back(shape_of(150, 512, 256, 2, 2, {{"activation", kSilu}, {"gated", 1}}));
  shapes.push_back(shape_of(40, 512, 256, 2, 2, {{"bias", 1}, {"residual", 1}}));
  return shapes;
}

std::vector<Workload> codes_workloads() {
  struct Layer {
    int64_t n, k;
  };
  Workload linear{"linear/llama8b_8bit", {}}, blocks{"linear/llama8b_8bit_blocks", {}};
  Workload few{"linear/llama8b_8bit_few", {}}, squares{"gemm/square_8bit", {}};
  Workload chain{"linear/llama8b_8bit_chain", {}};
  Workload types{"gemm/8bit_types", {shape_of(16, 2048, 2048, 1, 1, {{"static_b", 1}})}};
  for (const auto& [n, k] : {Layer{6144, 4096}, Layer{4096, 4096}, Layer{28672, 4096},
                             Layer{14336, 4096}, Layer{4096, 14336}, Layer{128256, 4096}}) {
    for (const int64_t m : {1, 16, 32, 64, 128, 256, 1024, 4096}) {
      if (n == 128256 && m == 1024) continue;
      linear.shapes.push_back(shape_of(m, n, k, 1, 1, {{"static_b", 1}}));
      if (n == 128256) continue;
      blocks.shapes.push_back(shape_of(m, n, k, 2, 2, {{"static_b", 1}}));
      if (m == 1 || m == 16 || m == 256 || m == 4096) few.shapes.push_back(linear.shapes.back());
    }
  }
  // The products that a norm precedes, alone and with the norm that writes their codes.
  for (const int64_t n : {6144, 28672}) {
    for (const int64_t norm : {0, 1}) {
      chain.shapes.push_back(shape_of(4096, n, 4096, 1, 1, {{"static_b", 1}, {"norm", norm}}));
    }
  }
  for (const int64_t size : {4096, 8192})
    squares.shapes.push_back(shape_of(size, size, size, 1, 1));
  // int4 weights, in groups of 128 of a row.
  Workload w4{"linear/llama8b_w4_codes", {}};
  for (const auto& [n, k] : {Layer{4096, 4096}, Layer{28672, 4096}, Layer{4096, 14336}}) {
    for (const int64_t m : {1, 4, 16, 64, 1024, 4096}) {
      w4.shapes.push_back(shape_of(m, n, k, 1, 3, {{"static_b", 1}}));
    }
  }
  return {linear, blocks, few, chain, squares, types, w4};
}

}  // namespace tessera::bench
