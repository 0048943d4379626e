// A weight that a quantiser made: codes, scales, and what they stand for.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"

namespace tessera::quant {

enum class CodeFormat : uint8_t {
  int4,       // with scales for groups of a row
  int8,       // with a scale for each row
  fp8,        // e4m3, with a scale for each row
  fp8_block,  // e4m3, with a scale for each block of 128 x 128
};
inline constexpr CodeFormat kAllCodeFormats[] = {CodeFormat::int4, CodeFormat::int8,
                                                 CodeFormat::fp8, CodeFormat::fp8_block};
constexpr std::string_view name(CodeFormat format) {
  switch (format) {
    case CodeFormat::int4: return "int4";
    case CodeFormat::int8: return "int8";
    case CodeFormat::fp8: return "fp8";
    case CodeFormat::fp8_block: return "fp8_block";
  }
  return "";
}
std::optional<CodeFormat> find_code_format(std::string_view text);

inline constexpr int64_t kBlockSide = 128;  // of fp8_block

struct QuantFormat {
  CodeFormat codes = CodeFormat::int4;
  int64_t group = 128;             // int4: elements of a row that share a scale; 0: all
  bool is_symmetric = true;        // int4: without zero points
  DType scale_dtype = DType::f32;  // scales are rounded to it before codes are chosen

  DType code_dtype() const {
    if (codes == CodeFormat::int4) return DType::i4;
    return codes == CodeFormat::int8 ? DType::i8 : DType::e4m3;
  }
  // Elements of a row that share a scale, for rows of k.
  int64_t group_of(int64_t k) const {
    if (codes == CodeFormat::fp8_block) return kBlockSide;
    return codes == CodeFormat::int4 && group > 0 ? group : k;
  }
  bool has_zero_points() const { return codes == CodeFormat::int4 && !is_symmetric; }
};

// Refuses a weight [n, k] that the format cannot hold, with the sizes that would fit.
void check_format(const QuantFormat& format, int64_t n, int64_t k, std::string_view what);

// Owns what a Weight refers to, in Packing::rows.
struct QuantizedWeight {
  Tensor values;      // [n, k]: codes
  Tensor scale;       // f32 [n, k / group]; of blocks [n / 128, k / 128], rounded up
  Tensor zero_point;  // i32, shape of scale; rank 0: none
  Tensor order;       // i32 [k], as in Weight; rank 0: none
  int64_t rows_per_scale = 1;
  int64_t group = 0;

  Weight view() const;
  int64_t size_bytes(DType scale_dtype) const;  // of codes, scales and zero points of 4 bits
};

// The values it stands for, f32 [n, k], columns in the order of the original.
Tensor dequantize(const QuantizedWeight& weight, const Context& ctx = {});

}  // namespace tessera::quant
