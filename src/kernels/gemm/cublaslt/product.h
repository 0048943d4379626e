// A matrix product as cuBLASLt sees it: everything that its choice of an algorithm depends on.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "tessera/ops/gemm.h"

namespace tessera::kernels {

// One operand: [rows, cols], row-major, repeated `batch` times. Strides count elements.
struct Placement {
  int64_t row_stride = 0;    // cols if there is one row
  int64_t batch_stride = 0;  // 0: the same for all, or there is one
  int64_t alignment = 0;     // bytes, at most kMaxAlignment; 0: no such operand

  bool operator==(const Placement&) const = default;
};
// No access of the library's kernels is wider, so a finer distinction would only multiply plans.
inline constexpr int64_t kMaxAlignment = 16;

struct Product {
  int device = 0;
  DType in = DType::f32;
  DType out = DType::f32;
  bool allows_tf32 = false;
  bool has_bias = false;
  bool has_residual = false;
  std::optional<Activation> activation = {};  // relu or gelu_tanh
  int64_t batch = 1;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  Placement a = {};
  Placement b = {};
  Placement c = {};  // the residual, or out where there is none
  Placement d = {};
  Placement bias = {};

  bool operator==(const Product&) const = default;
};

struct ProductHash {
  size_t operator()(const Product& p) const {
    uint64_t hash = 0;
    const auto mix = [&hash](std::initializer_list<int64_t> values) {
      for (const int64_t value : values) {
        hash = std::rotl(hash ^ static_cast<uint64_t>(value), 23) * 0x9e3779b97f4a7c15ULL;
      }
    };
    const int flags = int{p.allows_tf32} + 2 * int{p.has_bias} + 4 * int{p.has_residual};
    const int kind = p.activation ? 1 + static_cast<int>(*p.activation) : 0;
    mix({p.device, static_cast<int>(p.in), static_cast<int>(p.out), flags, kind});
    mix({p.batch, p.m, p.n, p.k, p.bias.alignment});
    for (const Placement* part : {&p.a, &p.b, &p.c, &p.d}) {
      mix({part->row_stride, part->batch_stride, part->alignment});
    }
    return static_cast<size_t>(hash ^ (hash >> 29));
  }
};

inline int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return std::min<int64_t>(kMaxAlignment, int64_t{1} << std::countr_zero(address | 16u));
}

// Nothing if the library cannot walk the view: rows that overlap or run backwards.
inline std::optional<Placement> placement_of(const TensorView& view, int64_t batch) {
  const int64_t rows = view.size(-2), cols = view.size(-1);
  Placement place{.row_stride = rows == 1 ? cols : view.stride(-2),
                  .batch_stride = view.rank == 3 && batch > 1 ? view.stride(0) : 0,
                  .alignment = alignment_of(view.data)};
  if (place.row_stride < cols || place.batch_stride < 0) return std::nullopt;
  return place;
}

// The library can fuse a bias and then relu or the tanh form of GELU; or, without an activation, a
// residual. Declined: GELU with f32 results, which it computes as for 16 bits; a bias of another
// type than out, which it would read as out's; and a 16-bit residual, because it rounds the product
// before adding it.
inline bool has_fitting_epilogue(const GemmArgs& args) {
  if (args.is_gated || args.out_scale) return false;
  const bool is_known = !args.activation || *args.activation == Activation::relu ||
                        (*args.activation == Activation::gelu_tanh && args.out.dtype != DType::f32);
  const bool is_same_type = args.out.dtype == args.a.dtype;
  const bool adds_exactly = !args.residual || args.a.dtype == DType::f32;
  return is_known && adds_exactly && !(args.activation && args.residual) &&
         (is_same_type || !args.bias);
}

// From checked arguments; nothing if the library cannot compute it.
inline std::optional<Product> product_of(const GemmArgs& args) {
  if (args.b.values.dtype != args.a.dtype || !has_fitting_epilogue(args)) return std::nullopt;
  const bool is_16_bit = args.a.dtype == DType::bf16 || args.a.dtype == DType::f16;
  if (!is_16_bit && args.a.dtype != DType::f32) return std::nullopt;
  if (args.out.dtype != args.a.dtype && args.out.dtype != DType::f32) return std::nullopt;
  Product p{.device = args.a.device.index,
            .in = args.a.dtype,
            .out = args.out.dtype,
            .allows_tf32 = !is_16_bit && args.allow_tf32,
            .has_bias = args.bias.has_value(),
            .has_residual = args.residual.has_value(),
            .activation = args.activation,
            .batch = args.a.rank == 3 ? args.a.size(0) : 1,
            .m = args.a.size(-2),
            .n = args.b.n(),
            .k = args.a.size(-1)};
  if (p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0) return std::nullopt;
  const auto a = placement_of(args.a, p.batch), b = placement_of(args.b.values, p.batch);
  const auto d = placement_of(args.out, p.batch);
  const auto c = args.residual ? placement_of(*args.residual, p.batch) : d;
  if (!a || !b || !c || !d) return std::nullopt;
  p.a = *a, p.b = *b, p.c = *c, p.d = *d;
  if (args.bias) p.bias.alignment = alignment_of(args.bias->data);
  return p;
}

}  // namespace tessera::kernels
