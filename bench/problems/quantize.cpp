// Problems for quantise and dequantise. The option "per" says which elements share a scale (0 the
// tensor, 1 a channel, 2 a token, 3 a "group" of a row's elements); "zero" adds zero points,
// "fixed" reads the scales instead of computing them.
// SPDX-License-Identifier: MIT
#include "tessera/ops/quantize.h"

#include <cmath>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"

namespace tessera::bench {
namespace {

enum Per : int64_t { kTensor, kChannel, kToken, kGroup };

// How a type's codes are spread for exact problems: steps of `step` up to qmax or levels - 1.
struct Codes {
  float qmax;         // symmetric
  float levels;       // less one; with a zero point
  float step;         // unit of integer data: half a code, so that rounding ties occur
  float usual_scale;  // scales normal data to most of the range
};

Codes codes_of(DType dtype) {
  switch (dtype) {
    case DType::i8: return {127, 0, 0.5f, 0.03f};
    case DType::u8: return {0, 255, 0.5f, 0.03f};
    case DType::i4: return {7, 15, 0.5f, 0.4f};
    case DType::e4m3: return {448, 0, 2, 0.01f};
    default: return {57344, 0, 256, 0.0001f};
  }
}

// Which scale element (r, c) uses, and its place among those that share it.
struct Sharing {
  int64_t rows_per_scale, cols_per_scale, scales_per_row;
  std::vector<int64_t> scale_shape;

  Sharing(int64_t per, int64_t group, int64_t rows, int64_t cols)
      : rows_per_scale(per == kTensor || per == kChannel ? std::max<int64_t>(rows, 1) : 1),
        cols_per_scale(per == kChannel ? 1
                       : per == kGroup ? group
                                       : std::max<int64_t>(cols, 1)),
        scales_per_row(cols == 0 ? 1 : cols / cols_per_scale) {
    scale_shape = {rows / rows_per_scale, scales_per_row};
    if (per == kTensor) scale_shape = {1};
    if (per == kChannel) scale_shape = {1, cols};
  }
  int64_t scale_idx(int64_t r, int64_t c) const {
    return r / rows_per_scale * scales_per_row + c / cols_per_scale;
  }
  int64_t place(int64_t r, int64_t c) const {
    return r % rows_per_scale * cols_per_scale + c % cols_per_scale;
  }
};

// Integer data: the scale of each set of elements is a power of two, because its extremes are qmax
// (or both ends of the levels) times that power. So every quotient is exact, ties included.
struct ExactValues {
  Sharing sharing;
  Codes codes;
  Random random;
  int64_t cols;
  int lowest_power;
  bool has_zero, is_fixed;

  float scale(int64_t i) const {
    return std::ldexp(1.0f, static_cast<int>(random.integer(3 * i, 0, 2)) + lowest_power);
  }
  float zero_point(int64_t i) const {
    if (sharing.rows_per_scale * sharing.cols_per_scale == 1 && !is_fixed) return 0.0f;
    return static_cast<float>(random.integer(3 * i + 1, 0, static_cast<int64_t>(codes.levels)));
  }
  float operator()(int64_t r, int64_t c) const {
    const int64_t i = sharing.scale_idx(r, c), place = sharing.place(r, c);
    const float zero = has_zero ? zero_point(i) : 0.0f;
    const float high = has_zero ? codes.levels - zero : codes.qmax;
    const float low = has_zero ? -zero : -codes.qmax;
    const int64_t element = (int64_t{1} << 40) + r * cols + c;
    const auto between = [&](float least, float most) {
      return codes.step *
             static_cast<float>(random.integer(element, std::lround(least / codes.step),
                                               std::lround(most / codes.step)));
    };
    if (is_fixed) return scale(i) * between(1.5f * low, 1.5f * high);  // some saturate
    const bool is_single = sharing.rows_per_scale * sharing.cols_per_scale == 1;
    if (place == 0) return scale(i) * (is_single || !has_zero ? high : low);
    if (place == 1 && has_zero) return scale(i) * high;
    return scale(i) * between(low, high);
  }
};

Problem make_quantize(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"rows", "cols", "per", "group", "zero", "fixed", "stride", "offset", "special"});
  const int64_t rows = b.get("rows"), cols = b.get("cols"), per = b.get("per");
  const bool has_zero = b.get("zero") != 0, is_fixed = b.get("fixed") != 0;
  const int64_t special = b.get("special", is_fixed ? kSpecialNan : 0);
  const Codes codes = codes_of(key.out);
  const Sharing sharing(per, b.get("group"), rows, cols);
  // The e5m2 extreme times 2^2 would overflow f16.
  const ExactValues exact{sharing,  codes,   b.random(), cols, key.out == DType::e5m2 ? -2 : 0,
                          has_zero, is_fixed};
  const Random random = b.random();
  fill_rows(b.rows("x", Role::input, key.in, rows, cols), [&](int64_t r, int64_t c) {
    if (special != 0 && r == rows / 2 && c == cols / 2) return special_value(special);
    if (!b.is_normal()) return exact(r, c);
    return rows >= 3 && r == rows - 1 ? 0.0f : random.normal(r * cols + c);
  });
  // Every step of the formula is a correctly rounded float operation; with random data one unit
  // is allowed for a reciprocal that is an ulp off.
  const int steps = b.is_normal() ? 1 : 0;
  b.rows("out", Role::output, key.out, rows, cols, {.steps = steps});
  const bool has_row_scales = per == kToken || per == kGroup;
  const Role scale_role = is_fixed ? Role::input : Role::output;
  Operand& scale = b.dense("scale", scale_role, DType::f32, sharing.scale_shape,
                           {.relative = b.is_normal() ? 0x1p-22 : 0.0});
  scale.is_per_row = has_row_scales;
  const auto scale_index = [&](int64_t r, int64_t c) { return r * sharing.scales_per_row + c; };
  if (is_fixed) {
    fill_rows(scale, [&](int64_t r, int64_t c) {
      return b.is_normal() ? codes.usual_scale : exact.scale(scale_index(r, c));
    });
  }
  if (has_zero) {
    Operand& zero =
        b.dense("zero_point", scale_role, DType::i32, sharing.scale_shape, {.steps = steps});
    zero.is_per_row = has_row_scales;
    if (is_fixed) {
      fill_rows(zero, [&](int64_t r, int64_t c) {
        return b.is_normal() ? std::floor(codes.levels / 2) : exact.zero_point(scale_index(r, c));
      });
    }
  }
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    quantize({.x = v[0],
              .out = v[1],
              .scale = v[2],
              .zero_point = has_zero ? std::optional(v[3]) : std::nullopt,
              .mode = is_fixed ? ScaleMode::fixed : ScaleMode::dynamic},
             ctx);
  };
  return b.finish(call, 3.0 * static_cast<double>(rows * cols),
                  is_fixed || has_row_scales ? "rows" : "");
}

Problem make_dequantize(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"rows", "cols", "per", "group", "zero", "stride", "offset", "table"});
  const int64_t rows = b.get("rows"), cols = b.get("cols"), per = b.get("per");
  const bool has_zero = b.get("zero") != 0, has_table = b.get("table") != 0;
  const Codes codes = codes_of(key.in);
  const Sharing sharing(per, b.get("group"), rows, cols);
  const Random random = b.random(), scale_random = b.random(), zero_random = b.random();
  const bool is_fp8 = key.in == DType::e4m3 || key.in == DType::e5m2;
  const auto highest = static_cast<int64_t>(is_fp8 ? 16 : has_zero ? codes.levels : codes.qmax);
  fill_rows(b.rows("x", Role::input, key.in, rows, cols), [&](int64_t r, int64_t c) {
    const int64_t i = r * cols + c;
    if (is_fp8 && b.is_normal()) return 40.0f * random.normal(i);
    return static_cast<float>(random.integer(i, has_zero ? 0 : -highest, highest));
  });
  const bool has_row_scales = per == kToken || per == kGroup;
  Operand& scale = b.dense("scale", Role::input, DType::f32, sharing.scale_shape);
  scale.is_per_row = has_row_scales;
  fill_rows(scale, [&](int64_t r, int64_t c) {
    const int64_t i = r * sharing.scales_per_row + c;
    if (b.is_normal()) return codes.usual_scale * (1.0f + 0.25f * scale_random.normal(i));
    return std::ldexp(1.0f, static_cast<int>(scale_random.integer(i, -2, 2)));
  });
  if (has_zero) {
    Operand& zero = b.dense("zero_point", Role::input, DType::i32, sharing.scale_shape);
    zero.is_per_row = has_row_scales;
    fill_rows(zero, [&](int64_t r, int64_t c) {
      return static_cast<float>(zero_random.integer(r * sharing.scales_per_row + c, 0,
                                                    static_cast<int64_t>(codes.levels)));
    });
  }
  if (has_table) {
    fill_vector(b.dense("table", Role::input, DType::f32, {kTableSize}), [&](int64_t i) {
      return b.is_normal() ? (static_cast<float>(i) - 7.5f) / 4.6f
                           : static_cast<float>((5 * i + 11) % kTableSize - 8);
    });
  }
  // A difference of integers is exact, so powers of two as scales leave one rounding, the same on
  // both sides; with other scales an implementation may multiply in another order.
  const Bound bound =
      b.is_normal() ? rounded_twice(key.out, 0x1p-22, has_zero ? 256 * 0x1p-23 : 0) : Bound{};
  b.rows("out", Role::output, key.out, rows, cols, bound);
  const auto call = [=](std::span<const TensorView> v, const Context& ctx) {
    dequantize({.x = v[0],
                .scale = v[1],
                .zero_point = has_zero ? std::optional(v[2]) : std::nullopt,
                .out = v.back(),
                .table = has_table ? std::optional(v[2]) : std::nullopt},
               ctx);
  };
  return b.finish(call, 2.0 * static_cast<double>(rows * cols), "rows");
}

bool codes_fit(DType code, const Shape& shape) {
  const bool has_zero = value_of(shape, "zero") != 0;
  if (has_zero && code != DType::u8 && code != DType::i4) return false;
  if (!has_zero && code == DType::u8) return false;
  if (code != DType::i4) return true;
  const bool has_pairs = value_of(shape, "cols") % 2 == 0 && value_of(shape, "group") % 2 == 0 &&
                         value_of(shape, "stride") % 2 == 0;
  return has_pairs && value_of(shape, "offset") % 2 == 0;
}
bool quantize_fits(RowKey key, const Shape& shape) { return codes_fit(key.out, shape); }
bool dequantize_fits(RowKey key, const Shape& shape) {
  const bool takes_table = key.in == DType::i4 && value_of(shape, "zero") == 0;
  return codes_fit(key.in, shape) && (value_of(shape, "table") == 0 || takes_table);
}

constexpr DType kCodes[] = {DType::i8, DType::u8, DType::i4, DType::e4m3, DType::e5m2};

std::vector<Shape> quantize_test_shapes(bool has_modes) {
  const std::vector<Shape> bases = {
      {{"rows", 0}, {"cols", 80}, {"per", kToken}},
      {{"rows", 1}, {"cols", 1}, {"per", kTensor}},
      {{"rows", 1}, {"cols", 2}, {"per", kToken}},
      {{"rows", 5}, {"cols", 7}, {"per", kTensor}},
      {{"rows", 33}, {"cols", 80}, {"per", kTensor}},
      {{"rows", 70}, {"cols", 1000}, {"per", kTensor}},
      {{"rows", 5}, {"cols", 7}, {"per", kChannel}},
      {{"rows", 70}, {"cols", 100}, {"per", kChannel}},
      {{"rows", 300}, {"cols", 1024}, {"per", kChannel}},
      {{"rows", 5}, {"cols", 7}, {"per", kToken}},
      {{"rows", 3}, {"cols", 1000}, {"per", kToken}},
      {{"rows", 3}, {"cols", 4096}, {"per", kToken}},
      {{"rows", 3}, {"cols", 5120}, {"per", kToken}},
      {{"rows", 2}, {"cols", 70000}, {"per", kToken}},
      {{"rows", 300}, {"cols", 64}, {"per", kToken}},
      {{"rows", 3}, {"cols", 4096}, {"per", kGroup}, {"group", 128}},
      {{"rows", 5}, {"cols", 320}, {"per", kGroup}, {"group", 32}},
      {{"rows", 5}, {"cols", 120}, {"per", kGroup}, {"group", 6}},
      {{"rows", 5}, {"cols", 21}, {"per", kGroup}, {"group", 7}},
      {{"rows", 3}, {"cols", 3000}, {"per", kGroup}, {"group", 1000}},
      {{"rows", 4}, {"cols", 80}, {"per", kToken}, {"stride", 96}},
      {{"rows", 4}, {"cols", 128}, {"per", kGroup}, {"group", 64}, {"stride", 130}},
      {{"rows", 4}, {"cols", 100}, {"per", kTensor}, {"stride", 101}, {"offset", 1}},
      {{"rows", 4}, {"cols", 1024}, {"per", kToken}, {"offset", 1}},
      {{"rows", 4}, {"cols", 1024}, {"per", kToken}, {"offset", 2}},
      {{"rows", 9}, {"cols", 66}, {"per", kChannel}, {"stride", 70}, {"offset", 2}},
  };
  std::vector<Shape> shapes;
  for (const Shape& base : bases) {
    for (const int64_t zero : {0, 1}) {
      const Shape shape = with_value(base, "zero", zero);
      shapes.push_back(shape);
      if (!has_modes) continue;
      shapes.push_back(with_value(shape, "fixed", 1));
      for (const int64_t special : kSpecials) {
        shapes.push_back(with_value(shape, "special", special));
        if (special == kSpecialNan) continue;  // fixed problems have it anyway
        shapes.push_back(with_value(with_value(shape, "fixed", 1), "special", special));
      }
    }
  }
  return shapes;
}

// Those without zero points once more, with a table.
std::vector<Shape> with_tables(std::vector<Shape> shapes) {
  const size_t count = shapes.size();
  for (size_t i = 0; i < count; ++i) {
    if (value_of(shapes[i], "zero") == 0) shapes.push_back(with_value(shapes[i], "table", 1));
  }
  return shapes;
}

std::vector<Shape> with_and_without_zero(std::vector<Shape> shapes) {
  const size_t count = shapes.size();
  for (size_t i = 0; i < count; ++i) shapes.push_back(with_value(shapes[i], "zero", 1));
  return shapes;
}

}  // namespace

ProblemMaker quantize_maker() {
  std::vector<RowKey> keys;
  for (const DType in : kFloats) {
    for (const DType code : kCodes) keys.push_back({in, code});
  }
  return {
      "quantize",
      &make_quantize,
      &quantize_fits,
      keys,
      quantize_test_shapes(true),
      {{"quantize", with_and_without_zero(
                        {{{"rows", 16}, {"cols", 4096}, {"per", kToken}},
                         {{"rows", 16384}, {"cols", 4096}, {"per", kToken}},
                         {{"rows", 16384}, {"cols", 4096}, {"per", kGroup}, {"group", 128}}})}}};
}

ProblemMaker dequantize_maker() {
  std::vector<RowKey> keys;
  for (const DType out : kFloats) {
    for (const DType code : kCodes) keys.push_back({code, out});
  }
  return {
      "dequantize",
      &make_dequantize,
      &dequantize_fits,
      keys,
      with_tables(quantize_test_shapes(false)),
      {{"dequantize", with_and_without_zero(
                          {{{"rows", 16384}, {"cols", 4096}, {"per", kToken}},
                           {{"rows", 16384}, {"cols", 4096}, {"per", kGroup}, {"group", 128}}})}}};
}

}  // namespace tessera::bench
