// Quantised weights of the matrix product's problems.
// SPDX-License-Identifier: MIT
#include "bench/problems/gemm_weight.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/parallel.h"
#include "tessera/ops/activation.h"
#include "tessera/ops/weight_packing.h"

namespace tessera::bench {
namespace {

// Zero points are drawn from this one and the three above it: the middle of the codes.
int64_t least_zero(DType codes) { return codes == DType::u8 ? 126 : 6; }
// For codes in Packing::rows: the standard deviation of the codes drawn, and the largest one.
float codes_per_deviation(DType codes) {
  return codes == DType::e4m3 ? 1.0f : codes == DType::i4 ? 4.0f : 30.0f;
}
float most_code(DType codes) { return codes == DType::i4 ? 7.0f : 120.0f; }

int64_t groups_of(const Shape& shape, int64_t k) {
  const int64_t group = value_of(shape, "group");
  return group == 0 ? 1 : k / group;
}

DType scale_type(const Builder& b) {
  if (b.get("bf16_scales") != 0) return DType::bf16;
  return b.get("f16_scales") != 0 ? DType::f16 : DType::f32;
}

// Small integers: the zero point of the code's group plus 1, 0 or -1.
void fill_integer_codes(Operand& codes, const Operand* zeros, int64_t n, int64_t k, int64_t groups,
                        Random random) {
  const int64_t spread = std::max<int64_t>(1, k / 700);
  auto* bytes = codes.host.view().as<uint8_t>();
  parallel_for(n / 16, 16 * k, [&](int64_t sixteenth) {  // no other rows share its bytes
    for (int64_t i = 0; i < 16 * k; ++i) {
      const int64_t row = 16 * sixteenth + i / k, col = i % k;
      const int64_t drawn = random.integer(row * k + col, -spread, spread);
      int64_t zero = kFragmentZero;
      if (zeros != nullptr) {
        zero = zeros->host.view().as<uint8_t>()[fragment_scale(row, col / (k / groups), groups)];
      }
      const auto code = static_cast<int>(zero + (drawn >= -1 && drawn <= 1 ? drawn : 0));
      const NibblePlace place = fragment_place(row, col, k);
      uint8_t& byte = bytes[place.byte];
      byte = static_cast<uint8_t>((byte & (0xf0 >> place.shift)) | code << place.shift);
    }
  });
}

// Codes in Packing::rows: normal values, or 1, 0 and -1; with zero points added to them.
void fill_rows_of_codes(Operand& codes, const Operand* zeros, bool is_normal, int64_t groups,
                        Random random) {
  const TensorView view = codes.host.view();
  const DType dtype = view.dtype;
  const int64_t n = codes.shape[0], k = codes.shape[1], spread = std::max<int64_t>(1, k / 700);
  parallel_for(n, k, [&](int64_t row) {
    for (int64_t col = 0; col < k; ++col) {
      const int64_t at = (row * k + col) % 1000003;
      const int64_t drawn = random.integer(at, -spread, spread);
      float code = static_cast<float>(drawn >= -1 && drawn <= 1 ? drawn : 0);
      if (is_normal) code = codes_per_deviation(dtype) * random.normal(at);
      if (dtype != DType::e4m3) {
        code = std::round(std::clamp(code, -most_code(dtype), most_code(dtype)));
      }
      if (zeros != nullptr) {
        code += zeros->host.view().as<uint8_t>()[row * groups + col / (k / groups)];
      }
      if (dtype != DType::i4) {
        store(view, row * k + col, code);
        continue;
      }
      const int nibble = static_cast<int>(zeros != nullptr ? std::clamp(code, 0.0f, 15.0f) : code);
      const int shift = col % 2 == 0 ? 0 : 4;
      uint8_t& byte = view.as<uint8_t>()[(row * k + col) / 2];
      byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | (nibble & 15) << shift);
    }
  });
}

// The value of a code of integer problems: neighbouring codes are far apart, and no code stands for
// its own number.
constexpr int64_t table_integer(int64_t code) { return (5 * code + 11) % kTableSize - 8; }

void fill_table(Operand& table, bool is_normal) {
  fill_vector(table, [=](int64_t code) {
    if (!is_normal) return static_cast<float>(table_integer(code));
    return (static_cast<float>(code) - 7.5f) / 4.6f;  // of variance 1
  });
}

// Nibbles that are indices: all alike, or of the values 1, -1 and 0.
void fill_indices(Operand& codes, bool is_normal, Random random) {
  const int64_t n = codes.shape[0], k = codes.shape[1], spread = std::max<int64_t>(1, k / 700);
  std::array<int64_t, 3> index_of{};  // of -1, 0 and 1
  for (int64_t code = 0; code < kTableSize; ++code) {
    const int64_t value = table_integer(code);
    if (value >= -1 && value <= 1) index_of[static_cast<size_t>(value + 1)] = code;
  }
  parallel_for(n, k, [&](int64_t row) {
    for (int64_t col = 0; col < k; ++col) {
      const int64_t at = (row * k + col) % 1000003;
      const int64_t drawn = random.integer(at, -spread, spread);
      int64_t code = index_of[static_cast<size_t>((drawn >= -1 && drawn <= 1 ? drawn : 0) + 1)];
      if (is_normal) code = random.integer(at, 0, kTableSize - 1);
      const int shift = col % 2 == 0 ? 0 : 4;
      uint8_t& byte = codes.host.view().as<uint8_t>()[(row * k + col) / 2];
      byte = static_cast<uint8_t>((byte & (0xf0 >> shift)) | code << shift);
    }
  });
}

void fill_random_codes(Operand& codes, Random random) {
  auto* words = codes.host.view().as<uint64_t>();
  const int64_t count = codes.host.size_bytes() / 8;
  parallel_for(count / 256, 256, [&](int64_t run) {
    for (int64_t i = 256 * run; i < 256 * run + 256; ++i) words[i] = random.bits(i);
  });
}

Shape shape_of(int64_t m, int64_t n, int64_t k, int64_t group,
               std::initializer_list<std::pair<std::string, int64_t>> options = {}) {
  Shape shape{{"m", m}, {"n", n}, {"k", k}, {"group", group}};
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

}  // namespace

void add_weight(Builder& b, RowKey key, int64_t n, int64_t k) {
  const int64_t groups = groups_of({{"group", b.get("group")}}, k);
  const int64_t by = b.get("rows_per_scale", 1), scale_rows = (n + by - 1) / by;
  const Random code_values = b.random(), scale_values = b.random(), zero_values = b.random();
  Operand& codes = b.dense("b", Role::input, key.weight, {n, k});
  Operand& scales = b.dense("b_scale", Role::input, scale_type(b), {scale_rows, groups});
  Operand* zeros = nullptr;
  if (b.get("zero_points") != 0) {
    zeros = &b.dense("b_zero_point", Role::input, DType::u8, {n, groups});
    fill_rows(*zeros, [&](int64_t r, int64_t c) {
      const int64_t least = least_zero(key.weight);
      return static_cast<float>(zero_values.integer(r * groups + c, least, least + 3));
    });
  }
  if (key.has_table) {
    fill_table(b.dense("b_table", Role::input, DType::f32, {kTableSize}), b.is_normal());
  }
  if (codes.host.size_bytes() == 0) return;
  const bool is_packed = key.packing != Packing::rows;
  const float per_deviation = is_packed       ? 5.0f
                              : key.has_table ? 1.0f
                                              : codes_per_deviation(key.weight);
  const float deviation =
      1.0f / (per_deviation * std::sqrt(static_cast<float>(std::max<int64_t>(1, k))));
  fill_rows(scales, [&](int64_t r, int64_t c) {
    const int64_t at = r * groups + c;
    if (!b.is_normal()) return scale_values.sign(at) > 0 ? 1.0f : 0.5f;
    return deviation * (0.75f + 0.5f * static_cast<float>(scale_values.bits(at) >> 40) * 0x1p-24f);
  });
  if (key.has_table) {
    fill_indices(codes, b.is_normal(), code_values);
  } else if (!is_packed) {
    fill_rows_of_codes(codes, zeros, b.is_normal(), groups, code_values);
  } else if (b.is_normal()) {
    fill_random_codes(codes, code_values);
  } else {
    fill_integer_codes(codes, zeros, n, k, groups, code_values);
  }
}

Weight weight_of(RowKey key, const Shape& shape, std::span<const TensorView> views, size_t& next) {
  Weight weight{.values = views[next], .scale = views[next + 1], .packing = key.packing};
  next += 2;
  if (value_of(shape, "zero_points") != 0) weight.zero_point = views[next++];
  if (key.has_table) weight.table = views[next++];
  weight.rows_per_scale = value_of(shape, "rows_per_scale", 1);
  if (weight.rows_per_scale > 1) weight.group = value_of(shape, "group");
  return weight;
}

std::vector<Shape> quantized_test_shapes() {
  constexpr int64_t kRelu = 1 + static_cast<int64_t>(Activation::relu);
  constexpr int64_t kSilu = 1 + static_cast<int64_t>(Activation::silu);
  constexpr int64_t kGelu = 1 + static_cast<int64_t>(Activation::gelu);
  std::vector<Shape> shapes = {
      shape_of(0, 64, 128, 128),
      shape_of(1, 64, 128, 128),
      shape_of(1, 256, 256, 0),
      shape_of(1, 320, 512, 128, {{"zero_points", 1}}),
      shape_of(3, 512, 1024, 64, {{"static_b", 1}}),
      shape_of(8, 64, 256, 32, {{"zero_points", 1}}),
      shape_of(9, 576, 384, 128),
      shape_of(16, 256, 4096, 128, {{"static_b", 1}}),
      shape_of(17, 192, 2048, 64, {{"zero_points", 1}, {"bias", 1}}),
      shape_of(24, 320, 1024, 0, {{"zero_points", 1}}),
      shape_of(33, 448, 2048, 32, {{"static_b", 1}}),
      shape_of(64, 1024, 1024, 128, {{"zero_points", 1}, {"static_b", 1}}),
      shape_of(65, 256, 1280, 64),
      shape_of(130, 320, 640, 0),
      shape_of(200, 192, 256, 128, {{"zero_points", 1}}),
      shape_of(5, 256, 512, 128, {{"gap", 8}, {"gap_out", 3}}),
      shape_of(70, 128, 256, 32, {{"gap", 64}, {"gap_out", 8}, {"residual", 1}}),
      shape_of(6, 128, 256, 128, {{"batch", 3}, {"shared_b", 1}}),
      shape_of(4, 33 * 1024, 128, 128, {{"static_b", 1}}),  // more tiles than SMs
      shape_of(1, 256, 512, 128, {{"residual", 2}}),
      shape_of(20, 256, 1024, 128, {{"bias", 1}, {"activation", kGelu}}),
      shape_of(2, 512, 512, 128, {{"activation", kSilu}, {"gated", 1}, {"static_b", 1}}),
      shape_of(40, 320, 1024, 64,
               {{"activation", kRelu}, {"gated", 1}, {"bias", 1}, {"residual", 1}}),
      shape_of(100, 256, 256, 32, {{"activation", kSilu}, {"gated", 1}, {"zero_points", 1}})};
  // Of codes in rows alone: n of any size, groups of 16, a k that ends within a step, and blocks.
  for (const Shape& shape :
       {shape_of(1, 33, 64, 16, {{"in_rows", 1}}),
        shape_of(7, 130, 96, 32, {{"in_rows", 1}, {"bias", 1}}),
        shape_of(19, 75, 160, 0, {{"in_rows", 1}, {"zero_points", 1}}),
        shape_of(90, 200, 480, 48, {{"in_rows", 1}, {"zero_points", 1}}),
        shape_of(3, 320, 256, 128, {{"in_rows", 1}, {"rows_per_scale", 128}}),
        shape_of(66, 200, 384, 128, {{"in_rows", 1}, {"rows_per_scale", 128}})}) {
    shapes.push_back(shape);
  }
  // 16-bit scales, which only packed codes have. The last four shapes have enough rows for units of
  // 32 rows and for blocks of four strips.
  for (const Shape& shape :
       {shape_of(1, 256, 256, 0, {{"f16_scales", 1}}),
        shape_of(2, 320, 1152, 128, {{"bf16_scales", 1}, {"static_b", 1}}),
        shape_of(4, 33 * 1024, 128, 128, {{"f16_scales", 1}, {"static_b", 1}}),
        shape_of(7, 128, 512, 32, {{"bf16_scales", 1}, {"zero_points", 1}}),
        shape_of(9, 192, 640, 128, {{"f16_scales", 1}, {"zero_points", 1}}),
        shape_of(16, 576, 1024, 64, {{"bf16_scales", 1}}),
        shape_of(30, 192, 512, 128, {{"f16_scales", 1}}),
        shape_of(60, 320, 512, 64, {{"bf16_scales", 1}, {"zero_points", 1}}),
        shape_of(130, 256, 384, 32, {{"f16_scales", 1}, {"zero_points", 1}}),
        shape_of(40, 128, 256, 0, {{"bf16_scales", 1}, {"zero_points", 1}}),
        shape_of(6, 4224, 128, 64, {{"bf16_scales", 1}}),
        shape_of(12, 4224, 256, 128, {{"f16_scales", 1}}),
        shape_of(24, 4160, 128, 128, {{"bf16_scales", 1}}),
        shape_of(34, 4160, 128, 64, {{"f16_scales", 1}, {"zero_points", 1}})}) {
    shapes.push_back(shape);
  }
  for (const int64_t special : kSpecials) {
    shapes.push_back(shape_of(4, 256, 512, 128, {{"special", special}}));
  }
  return shapes;
}

std::vector<Workload> quantized_workloads() {
  struct Layer {
    int64_t n, k;
  };
  constexpr int64_t kSilu = 1 + static_cast<int64_t>(Activation::silu);
  Workload linear{"linear/llama8b_w4", {}}, fused{"ffn/fused_w4", {}}, types{"gemm/w4_types", {}};
  for (const auto& [n, k] : {Layer{6144, 4096}, Layer{4096, 4096}, Layer{28672, 4096},
                             Layer{14336, 4096}, Layer{4096, 14336}}) {
    for (const int64_t m : {1, 2, 4, 8, 16, 17, 32, 33, 64, 65, 128, 256, 1024, 4096}) {
      linear.shapes.push_back(shape_of(m, n, k, 128, {{"static_b", 1}}));
    }
  }
  Workload few{"linear/llama8b_w4_few", {}}, many{"linear/llama8b_w4_many", {}};  // compare plans
  for (const Shape& shape : linear.shapes) {
    const int64_t m = value_of(shape, "m");
    if (m == 1 || m == 16 || m == 64) few.shapes.push_back(shape);
    if (m >= 128) many.shapes.push_back(shape);
  }
  for (const int64_t m : {1, 16}) {
    fused.shapes.push_back(
        shape_of(m, 28672, 4096, 128, {{"activation", kSilu}, {"gated", 1}, {"static_b", 1}}));
    fused.shapes.push_back(shape_of(m, 4096, 14336, 128, {{"residual", 1}, {"static_b", 1}}));
  }
  for (const int64_t group : {0, 32, 64, 128}) {
    types.shapes.push_back(shape_of(16, 2048, 2048, group, {{"static_b", 1}}));
    types.shapes.push_back(shape_of(16, 2048, 2048, group, {{"zero_points", 1}, {"static_b", 1}}));
  }
  Workload scales{"linear/llama8b_w4_scales", {}};  // compare types of scales
  for (const Shape& shape : few.shapes) {
    scales.shapes.push_back(shape);
    for (const char* type : {"bf16_scales", "f16_scales"}) {
      scales.shapes.emplace_back(shape).emplace_back(type, 1);
    }
  }
  return {linear, few, many, fused, types, scales};
}

}  // namespace tessera::bench
