// Quantised weights on the CPU: their values as floats, and their packings.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "core/parallel.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/gemm.h"
#include "cpu/quant_code.h"
#include "tessera/ops/weight_packing.h"

namespace tessera::cpu {
namespace {

// The scales of a weight and their zero points, by the place of an element.
class Scales {
 public:
  explicit Scales(const Weight& weight)
      : layout_(scale_layout(weight)),
        scale_(*weight.scale),
        zero_point_(weight.zero_point ? weight.zero_point->data : nullptr),
        has_bytes_(weight.zero_point && weight.zero_point->dtype == DType::u8),
        packing_(weight.packing) {}

  int64_t cols_per_scale() const { return layout_.cols_per_scale; }
  int64_t index(int64_t row, int64_t col) const {
    const int64_t group = col / layout_.cols_per_scale;
    if (packing_ == Packing::fragments) return fragment_scale(row, group, layout_.scales_per_row);
    return row / layout_.rows_per_scale * layout_.scales_per_row + group;
  }
  float scale(int64_t index) const {
    if (scale_.dtype == DType::bf16) return to_float(scale_.as<Bf16>()[index]);
    if (scale_.dtype == DType::f16) return to_float(scale_.as<F16>()[index]);
    return scale_.as<float>()[index];
  }
  void set_scale(int64_t index, float value) const {
    with_float_type(scale_.dtype, [&](auto type) {
      using T = decltype(type);
      scale_.as<T>()[index] = from_float<T>(value);
    });
  }
  double zero(int64_t index) const {
    if (zero_point_ == nullptr) return 0.0;
    if (has_bytes_) return static_cast<double>(static_cast<const uint8_t*>(zero_point_)[index]);
    return static_cast<double>(static_cast<const int32_t*>(zero_point_)[index]);
  }
  void set_zero(int64_t index, int32_t value) const {
    if (has_bytes_) {
      static_cast<uint8_t*>(zero_point_)[index] = static_cast<uint8_t>(value);
    } else {
      static_cast<int32_t*>(zero_point_)[index] = value;
    }
  }

 private:
  ScaleLayout layout_;
  TensorView scale_;
  void* zero_point_;
  bool has_bytes_;
  Packing packing_;
};

// The codes of one row as numbers: those of a table, where there is one.
void load_row_codes(const Weight& weight, int64_t row, float* codes) {
  const int64_t k = weight.k();
  const bool is_signed = !weight.zero_point.has_value() && !weight.table.has_value();
  if (weight.packing == Packing::rows) {
    load_codes(weight.values, row * weight.values.stride(0), k, is_signed, codes);
    if (weight.table) look_up_indices(weight.table->as<float>(), k, codes);
    return;
  }
  const auto* bytes = weight.values.as<uint8_t>();
  const int zero = is_signed ? kFragmentZero : 0;
  for (int64_t col = 0; col < k; ++col) {
    const NibblePlace place = fragment_place(row, col, k);
    codes[col] = static_cast<float>((bytes[place.byte] >> place.shift & 15) - zero);
  }
}

// Copies scales and zero points from one packing to the other.
void move_groups(const Weight& from, const Weight& to) {
  const Scales in(from), out(to);
  const int64_t groups = scale_layout(from).scales_per_row, group = in.cols_per_scale();
  for (int64_t row = 0; row < from.n(); ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t source = in.index(row, g * group), target = out.index(row, g * group);
      out.set_scale(target, in.scale(source));
      if (from.zero_point) out.set_zero(target, static_cast<int32_t>(in.zero(source)));
    }
  }
}

}  // namespace

void dequantize_rows(const Weight& weight, int64_t begin, int64_t end, float* out) {
  const int64_t k = weight.k();
  const Scales scales(weight);
  parallel_for(end - begin, k, [&](int64_t i) {
    float* values = out + i * k;
    load_row_codes(weight, begin + i, values);
    for (int64_t first = 0; first < k; first += scales.cols_per_scale()) {
      const int64_t index = scales.index(begin + i, first);
      const int64_t last = std::min(k, first + scales.cols_per_scale());
      const float scale = scales.scale(index);
      const double zero = scales.zero(index);
      for (int64_t col = first; col < last; ++col) {
        values[col] = static_cast<float>(double{values[col]} - zero) * scale;
      }
    }
  });
}

void pack_weight(const Weight& from, const Weight& to) {
  const bool packs = to.packing == Packing::fragments;
  const Weight& rows = packs ? from : to;
  const int64_t k = rows.k(), stride = rows.values.stride(0);
  const auto flip = static_cast<uint8_t>(rows.zero_point ? 0 : kFragmentZero);  // signed: + 8
  // 16 rows of fragments share no byte with other rows.
  parallel_for(rows.n() / 16, 16 * k, [&](int64_t sixteenth) {
    for (int64_t i = 0; i < 16 * k; ++i) {
      const int64_t row = 16 * sixteenth + i / k, col = i % k;
      const NibblePlace packed = fragment_place(row, col, k);
      const NibblePlace plain{(row * stride + col) / 2, static_cast<int>(4 * (col % 2))};
      const NibblePlace& source = packs ? plain : packed;
      const NibblePlace& target = packs ? packed : plain;
      const int code = from.values.as<uint8_t>()[source.byte] >> source.shift & 15;
      uint8_t& byte = to.values.as<uint8_t>()[target.byte];
      byte =
          static_cast<uint8_t>((byte & (0xf0 >> target.shift)) | ((code ^ flip) << target.shift));
    }
  });
  move_groups(from, to);
}

}  // namespace tessera::cpu
