// Quantise and dequantise on the CPU.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "cpu/quant_code.h"
#include "cpu/reduce_row.h"

namespace tessera::cpu {
namespace {

// The scales of a call, and where they apply.
struct Scales {
  ScaleLayout layout;
  float* scale;
  int32_t* zero_point;  // null: symmetric
  int64_t count;
};

template <class Args>
Scales scales_of(const Args& args) {
  return {scale_layout(args.x, args.scale), args.scale.template as<float>(),
          args.zero_point ? args.zero_point->template as<int32_t>() : nullptr,
          args.scale.num_elements()};
}

// Calls body(begin, end, index) for each run of a row's columns that shares scale `index`.
template <class Body>
void for_each_run(const ScaleLayout& layout, int64_t row, int64_t num_cols, Body&& body) {
  int64_t index = row / layout.rows_per_scale * layout.scales_per_row;
  for (int64_t begin = 0; begin < num_cols; begin += layout.cols_per_scale, ++index) {
    body(begin, std::min(begin + layout.cols_per_scale, num_cols), index);
  }
}

void set_scale(const Scales& scales, DType code, int64_t index, const Range& range) {
  if (scales.zero_point == nullptr) {
    scales.scale[index] = scale_for(range.absmax(), quant_max(code));
    return;
  }
  const int highest = zero_point_max(code);
  const float scale = scale_for(range.width(), static_cast<float>(highest));
  const float zero_point = shifted_code(-range.lowest * (1.0f / scale), 0, highest);
  scales.scale[index] = scale;
  scales.zero_point[index] = static_cast<int32_t>(zero_point);
}

// Each row has scales of its own: per token and per group.
template <class T>
void find_row_scales(const QuantizeArgs& args, const Rows& x, const Scales& scales) {
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    for_each_run(scales.layout, row, x.num_cols, [&](int64_t begin, int64_t end, int64_t index) {
      set_scale(scales, args.out.dtype, index, range_of(values + begin, end - begin));
    });
  });
}

// One scale for all: the range of each row, then of the rows. Extremes do not depend on the order.
template <class T>
void find_tensor_scale(const QuantizeArgs& args, const Rows& x, const Scales& scales) {
  std::vector<Range> ranges(static_cast<size_t>(x.num_rows));
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    ranges[static_cast<size_t>(row)] = range_of(values, x.num_cols);
  });
  Range all;
  for (const Range& range : ranges) all.include(range);
  set_scale(scales, args.out.dtype, 0, all);
}

// One scale per column. A thread takes a strip of columns down all rows.
template <class T>
void find_column_scales(const QuantizeArgs& args, const Rows& x, const Scales& scales) {
  constexpr int64_t kStrip = 64;
  const int64_t num_strips = (x.num_cols + kStrip - 1) / kStrip;
  parallel_for(num_strips, kStrip * x.num_rows, [&](int64_t strip) {
    const int64_t begin = strip * kStrip;
    const int64_t count = std::min(kStrip, x.num_cols - begin);
    Range ranges[kStrip];
    float values[kStrip];
    for (int64_t row = 0; row < x.num_rows; ++row) {
      load_row(args.x.as<T>() + row * x.row_stride + begin, count, values);
      for (int64_t i = 0; i < count; ++i) ranges[i].include(values[i]);
    }
    for (int64_t i = 0; i < count; ++i) set_scale(scales, args.out.dtype, begin + i, ranges[i]);
  });
}

template <class T>
void find_scales(const QuantizeArgs& args, const Rows& x, const Scales& scales) {
  if (args.x.num_elements() == 0) {
    for (int64_t i = 0; i < scales.count; ++i) set_scale(scales, args.out.dtype, i, Range{});
  } else if (scales.layout.rows_per_scale == 1) {
    find_row_scales<T>(args, x, scales);
  } else if (scales.layout.scales_per_row == 1) {
    find_tensor_scale<T>(args, x, scales);
  } else {
    find_column_scales<T>(args, x, scales);
  }
}

// Values to scaled values (FP8) or to integer codes, in place.
void encode_row(const Scales& scales, DType code, int64_t row, int64_t num_cols, float* values) {
  const bool is_integer = code == DType::i8 || code == DType::u8 || code == DType::i4;
  const float limit = quant_max(code);
  const int highest = zero_point_max(code);
  for_each_run(scales.layout, row, num_cols, [&](int64_t begin, int64_t end, int64_t index) {
    const float inverse = 1.0f / scales.scale[index];
    for (int64_t i = begin; i < end; ++i) values[i] *= inverse;
    if (scales.zero_point != nullptr) {
      const int32_t zero = scales.zero_point[index];
      for (int64_t i = begin; i < end; ++i) values[i] = shifted_code(values[i], zero, highest);
    } else if (is_integer) {
      for (int64_t i = begin; i < end; ++i) values[i] = symmetric_code(values[i], limit);
    }
  });
}

uint8_t nibble(float code) { return static_cast<uint8_t>(static_cast<int>(code) & 0xf); }

void store_codes(const float* codes, const TensorView& out, int64_t offset, int64_t count) {
  switch (out.dtype) {
    case DType::i8:
      for (int64_t i = 0; i < count; ++i) {
        out.as<int8_t>()[offset + i] = static_cast<int8_t>(codes[i]);
      }
      return;
    case DType::u8:
      for (int64_t i = 0; i < count; ++i) {
        out.as<uint8_t>()[offset + i] = static_cast<uint8_t>(codes[i]);
      }
      return;
    case DType::i4:
      for (int64_t i = 0; i < count; i += 2) {
        const uint8_t high = static_cast<uint8_t>(nibble(codes[i + 1]) << 4);
        out.as<I4x2>()[(offset + i) / 2] = {static_cast<uint8_t>(nibble(codes[i]) | high)};
      }
      return;
    case DType::e4m3:
      for (int64_t i = 0; i < count; ++i) out.as<E4m3>()[offset + i] = byte_code<E4m3>(codes[i]);
      return;
    default:
      for (int64_t i = 0; i < count; ++i) out.as<E5m2>()[offset + i] = byte_code<E5m2>(codes[i]);
  }
}

void decode_row(const Scales& scales, int64_t row, int64_t num_cols, float* codes) {
  for_each_run(scales.layout, row, num_cols, [&](int64_t begin, int64_t end, int64_t index) {
    const float scale = scales.scale[index];
    const int32_t zero_point = scales.zero_point == nullptr ? 0 : scales.zero_point[index];
    const double zero = static_cast<double>(zero_point);
    for (int64_t i = begin; i < end; ++i) {
      codes[i] = static_cast<float>(double{codes[i]} - zero) * scale;
    }
  });
}

}  // namespace

float nibble_value(unsigned bits, bool is_signed) {
  const int value = static_cast<int>(bits & 0xfu);
  return static_cast<float>(is_signed && value > 7 ? value - 16 : value);
}

namespace {

// FP8 has so few codes that a table is faster than computing their values.
template <class Code>
void look_up(const TensorView& x, int64_t offset, int64_t count, float* values) {
  static const auto table = [] {
    std::array<float, 256> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = to_float(Code{static_cast<uint8_t>(i)});
    return all;
  }();
  const Code* from = x.as<Code>() + offset;
  for (int64_t i = 0; i < count; ++i) values[i] = table[from[i].bits];
}

}  // namespace

void load_codes(const TensorView& x, int64_t offset, int64_t count, bool is_signed, float* codes) {
  switch (x.dtype) {
    case DType::i8:
      for (int64_t i = 0; i < count; ++i) codes[i] = x.as<int8_t>()[offset + i];
      return;
    case DType::u8:
      for (int64_t i = 0; i < count; ++i) codes[i] = x.as<uint8_t>()[offset + i];
      return;
    case DType::i4:
      for (int64_t i = 0; i < count; i += 2) {
        const unsigned bits = x.as<I4x2>()[(offset + i) / 2].bits;
        codes[i] = nibble_value(bits, is_signed);
        codes[i + 1] = nibble_value(bits >> 4, is_signed);
      }
      return;
    case DType::e4m3: return look_up<E4m3>(x, offset, count, codes);
    default: return look_up<E5m2>(x, offset, count, codes);
  }
}

void look_up_indices(const float* table, int64_t count, float* indices) {
  std::transform(indices, indices + count, indices,
                 [=](float index) { return table[static_cast<int>(index)]; });
}

void quantize(const QuantizeArgs& args) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  const Scales scales = scales_of(args);
  with_float_type(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    if (args.mode == ScaleMode::dynamic) find_scales<T>(args, x, scales);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
      encode_row(scales, args.out.dtype, row, x.num_cols, values);
      store_codes(values, args.out, row * out.row_stride, x.num_cols);
    });
  });
}

void dequantize(const DequantizeArgs& args) {
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  const Scales scales = scales_of(args);
  const bool is_signed = scales.zero_point == nullptr && !args.table;
  with_float_type(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
      load_codes(args.x, row * x.row_stride, x.num_cols, is_signed, values);
      if (args.table) look_up_indices(args.table->as<float>(), x.num_cols, values);
      decode_row(scales, row, x.num_cols, values);
      store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
    });
  });
}

}  // namespace tessera::cpu
