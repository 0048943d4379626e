// The epilogue of a matrix product, on accumulators in registers: small steps, each a struct.
// SPDX-License-Identifier: MIT
//
//   d = sums of codes times their scales; activation(d + bias), or activation(gate) * up;
//       + residual; / out_scale; rounded once
//
// Work      A block is 16 rows by kRegs * 2 columns of the product, spread over a warp as mma.sync
//           and wgmma leave it: register 4 j + 2 h + c of a lane is row lane / 4 + 8 h, column
//           8 j + 2 (lane % 4) + c. Every step changes the registers in place.
// Pipeline  None of its own: the kernel calls transform and then a store.
// Output    Each element is computed by itself, in float, and rounded once.
// Cost      Conditions are the same for the whole grid: a branch per block, none per element.
// Needs     d holds sums in float; gated products have a multiple of 16 columns.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/activation_functions.cuh"
#include "tessera/ops/gemm.h"
#include "tile/convert.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

// What happens to a product before it is stored: plain data. Strides count elements. T is the type
// of a; where a holds codes, f16 if out is f16, else bf16.
struct EpilogueParams {
  const float* a_scale;    // [m] or one; null: 1. Scales that change along k are not here
  const float* b_scale;    // [n] or one; null: 1
  const int32_t* a_zero;   // [m] or one: zero points of a; null: 0
  const float* b_sums;     // [n]: sums of b's codes over k; given with a_zero
  const void* bias;        // [n], of type T; null: none
  const void* residual;    // [batch, m, columns of out], of type T; null: none
  void* out;               // [batch, m, columns of out]
  const float* out_scale;  // one float; null: out holds values, not codes
  int64_t residual_stride;
  int64_t residual_batch_stride;
  int64_t out_stride;
  int64_t out_batch_stride;
  int a_scale_stride;  // 1, or 0 where one serves all rows
  int b_scale_stride;
  int a_zero_stride;
  int m;
  int n;  // columns of the product; out has half as many if is_gated
  DType out_type;
  Activation activation;  // if has_activation
  bool has_activation;
  bool is_gated;
  bool is_plain;         // the product alone is stored
  bool has_pairs;        // out and residual may be accessed two aligned elements at a time
  bool has_scale_pairs;  // b_scale may
};
static_assert(std::is_trivially_copyable_v<EpilogueParams>);

// The scales of codes that apply to whole rows of a and b.
inline void add_scales(const GemmArgs& args, EpilogueParams& p) {
  const auto stride = [](const TensorView& t) { return t.num_elements() == 1 ? 0 : 1; };
  if (args.a_scale->rank == 1) {
    p.a_scale = args.a_scale->as<float>();
    p.a_scale_stride = stride(*args.a_scale);
  }
  if (args.b.scale->rank == 1) {
    p.b_scale = args.b.scale->as<float>();
    p.b_scale_stride = stride(*args.b.scale);
    p.has_scale_pairs = reinterpret_cast<uintptr_t>(p.b_scale) % 8 == 0;
  }
  if (args.a_zero_point) {
    p.a_zero = args.a_zero_point->as<int32_t>();
    p.a_zero_stride = stride(*args.a_zero_point);
    p.b_sums = args.b.row_sums->as<float>();
  }
}

// From checked arguments. Batch strides are 0 for tensors of two axes.
inline EpilogueParams epilogue_params(const GemmArgs& args) {
  const TensorView& out = args.out;
  const auto batch_stride = [](const TensorView& t) { return t.rank == 3 ? t.stride(0) : 0; };
  EpilogueParams p{};
  p.bias = args.bias ? args.bias->data : nullptr;
  p.residual = args.residual ? args.residual->data : nullptr;
  p.out = out.data;
  p.out_scale = args.out_scale ? args.out_scale->as<float>() : nullptr;
  p.out_stride = out.stride(-2);
  p.out_batch_stride = batch_stride(out);
  if (args.residual) {
    p.residual_stride = args.residual->stride(-2);
    p.residual_batch_stride = batch_stride(*args.residual);
  }
  p.m = static_cast<int>(args.a.size(-2));
  p.n = static_cast<int>(args.b.n());
  p.out_type = out.dtype;
  p.has_activation = args.activation.has_value();
  p.activation = args.activation.value_or(Activation::relu);
  p.is_gated = args.is_gated;
  if (args.a_scale) add_scales(args, p);
  p.is_plain =
      !p.bias && !p.residual && !p.out_scale && !p.has_activation && !p.a_scale && !p.b_scale;
  const auto is_paired = [](const void* data, int64_t element_bytes, int64_t stride,
                            int64_t batch_stride) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(2 * element_bytes) == 0 &&
           stride % 2 == 0 && batch_stride % 2 == 0;
  };
  p.has_pairs = is_paired(p.out, bit_width(out.dtype) / 8, p.out_stride, p.out_batch_stride) &&
                is_paired(p.residual, bit_width(value_type(args)) / 8, p.residual_stride,
                          p.residual_batch_stride);
  return p;
}

// The place of a lane's part of a block in the product.
struct BlockPlace {
  int row;  // row of register 0: the block's first row + lane / 4
  int col;  // column of register 0: the block's first column + 2 * (lane % 4)
  int batch;
};

// sums -= a_zero[row] * b_sums[col], exactly.
template <int kRegs>
__device__ void subtract_zero_points(int32_t (&sums)[kRegs], const EpilogueParams& p,
                                     BlockPlace at) {
  int32_t zero[2];
  TESSERA_UNROLL
  for (int h = 0; h < 2; ++h) {
    zero[h] = p.a_zero[min(at.row + 8 * h, p.m - 1) * p.a_zero_stride];
  }
  TESSERA_UNROLL
  for (int i = 0; i < kRegs; ++i) {
    const float b_sum = __ldg(p.b_sums + min(at.col + i / 4 * 8 + i % 2, p.n - 1));
    sums[i] -= zero[i / 2 % 2] * static_cast<int32_t>(b_sum);
  }
}

// d *= a_scale[row] * b_scale[col]. Scales of a are what the kernel in front wrote, perhaps after
// this one had begun, so they are not read as constants (__ldg).
struct ApplyScales {
  template <int kRegs>
  __device__ static void apply(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
    float a_scale[2] = {1, 1};
    if (p.a_scale != nullptr) {
      TESSERA_UNROLL
      for (int h = 0; h < 2; ++h) {
        a_scale[h] = p.a_scale[min(at.row + 8 * h, p.m - 1) * p.a_scale_stride];
      }
    }
    if (p.b_scale == nullptr || p.b_scale_stride == 0) {
      const float b_scale = p.b_scale != nullptr ? __ldg(p.b_scale) : 1.0f;
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) d[i] *= a_scale[i / 2 % 2] * b_scale;
    } else if (p.has_scale_pairs && at.col + 2 * kRegs <= p.n) {  // the whole block lies inside
      const auto* pairs = reinterpret_cast<const float2*>(p.b_scale + at.col);
      TESSERA_UNROLL
      for (int j = 0; j < kRegs / 4; ++j) {
        const float2 pair = __ldg(pairs + 4 * j);
        scale_eight(d, j, a_scale, pair);
      }
    } else {
      TESSERA_UNROLL
      for (int j = 0; j < kRegs / 4; ++j) {
        const int col = at.col + 8 * j;
        if (col >= p.n) continue;
        const float low = __ldg(p.b_scale + col);
        scale_eight(d, j, a_scale, {low, col + 1 < p.n ? __ldg(p.b_scale + col + 1) : low});
      }
    }
  }

  // A lane's two columns in the j-th eight of a block.
  template <int kRegs>
  __device__ static void scale_eight(float (&d)[kRegs], int j, const float (&a_scale)[2],
                                     float2 b_scale) {
    d[4 * j] *= a_scale[0] * b_scale.x;
    d[4 * j + 1] *= a_scale[0] * b_scale.y;
    d[4 * j + 2] *= a_scale[1] * b_scale.x;
    d[4 * j + 3] *= a_scale[1] * b_scale.y;
  }
};

// d += bias[col].
template <class T>
struct AddBias {
  template <int kRegs>
  __device__ static void apply(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
    const T* bias = static_cast<const T*>(p.bias);
    TESSERA_UNROLL
    for (int j = 0; j < kRegs / 4; ++j) {
      TESSERA_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int col = at.col + 8 * j + c;
        const float value = col < p.n ? tile::to_float(bias[col]) : 0.0f;
        d[4 * j + c] += value;
        d[4 * j + 2 + c] += value;
      }
    }
  }
};

// d = f(d).
template <Activation kKind, class T>
struct Activate {
  template <int kRegs>
  __device__ static void apply(float (&d)[kRegs]) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) d[i] = activate<kKind, T>(d[i]);
  }
};

// Columns of gate and up alternate by eights, so a lane holds both. The results move to the first
// half of the registers.
template <Activation kKind, class T>
struct Gate {
  static_assert(kGateUpRows == 8, "a lane's columns are 8 apart");
  template <int kRegs>
  __device__ static void apply(float (&d)[kRegs]) {
    TESSERA_UNROLL
    for (int i = 0; i < kRegs / 2; ++i) {
      const int gate = i / 4 * 8 + i % 4;
      d[i] = activate<kKind, T>(d[gate]) * d[gate + 4];
    }
  }
};

// Calls f with Step<kind, T> for the activation at hand.
template <template <Activation, class> class Step, class T, class F>
__device__ void with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::relu: return f(Step<Activation::relu, T>{});
    case Activation::silu: return f(Step<Activation::silu, T>{});
    case Activation::gelu: return f(Step<Activation::gelu, T>{});
    case Activation::gelu_tanh: return f(Step<Activation::gelu_tanh, T>{});
  }
}

// Two neighbouring elements of a row, of which `num_valid` (at most 2) exist.
template <class T>
__device__ float2 load_pair(const T* at, int num_valid, bool is_aligned) {
  struct alignas(2 * sizeof(T)) Pair {
    T values[2];
  };
  if (is_aligned && num_valid >= 2) {
    const Pair pair = *reinterpret_cast<const Pair*>(at);
    return {tile::to_float(pair.values[0]), tile::to_float(pair.values[1])};
  }
  return {num_valid > 0 ? tile::to_float(at[0]) : 0.0f,
          num_valid > 1 ? tile::to_float(at[1]) : 0.0f};
}
template <class T>
__device__ void store_pair(T* at, float low, float high, int num_valid, bool is_aligned) {
  struct alignas(2 * sizeof(T)) Pair {
    T values[2];
  } pair;
  tile::from_floats(low, high, pair.values);
  if (is_aligned && num_valid >= 2) {
    *reinterpret_cast<Pair*>(at) = pair;
  } else {
    if (num_valid > 0) at[0] = pair.values[0];
    if (num_valid > 1) at[1] = pair.values[1];
  }
}

// The column of out at which a lane's results begin, and the number of columns of out.
__device__ inline int out_col(const EpilogueParams& p, BlockPlace at) {
  return p.is_gated ? at.col / 16 * 8 + at.col % 8 : at.col;
}
__device__ inline int num_out_cols(const EpilogueParams& p) { return p.is_gated ? p.n / 2 : p.n; }

// d += residual, over the first kUsed registers, which hold the results. Inside the product many
// pairs are loaded at once to hide their latency; at its edges one by one.
template <class T, int kUsed>
struct AddResidual {
  static constexpr int kEights = kUsed / 4;                  // groups of 8 columns
  static constexpr int kAtOnce = kEights < 8 ? kEights : 8;  // groups loaded at once, in two rows

  template <int kRegs>
  __device__ static void apply(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
    const int first = out_col(p, at);
    const int num_cols = num_out_cols(p);
    if (p.has_pairs && at.row + 8 < p.m && first + 8 * kEights - 6 <= num_cols) {
      return apply_whole(d, p, at, first);
    }
    TESSERA_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int row = at.row + 8 * h;
      if (row >= p.m) continue;
      const T* residual = static_cast<const T*>(p.residual) + at.batch * p.residual_batch_stride +
                          row * p.residual_stride;
      TESSERA_UNROLL
      for (int j = 0; j < kUsed / 4; ++j) {
        const int col = first + 8 * j;
        const float2 pair = load_pair(residual + col, num_cols - col, p.has_pairs);
        d[4 * j + 2 * h] += pair.x;
        d[4 * j + 2 * h + 1] += pair.y;
      }
    }
  }

  template <int kRegs>
  __device__ static void apply_whole(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at,
                                     int first) {
    const T* residual = static_cast<const T*>(p.residual) + at.batch * p.residual_batch_stride +
                        at.row * p.residual_stride + first;
    TESSERA_UNROLL
    for (int from = 0; from < kEights; from += kAtOnce) {
      float2 pairs[2 * kAtOnce];
      TESSERA_UNROLL
      for (int i = 0; i < 2 * kAtOnce; ++i) {
        if (from + i / 2 >= kEights) continue;
        pairs[i] =
            load_pair(residual + i % 2 * 8 * p.residual_stride + 8 * (from + i / 2), 2, true);
      }
      TESSERA_UNROLL
      for (int i = 0; i < 2 * kAtOnce; ++i) {
        if (from + i / 2 >= kEights) continue;
        d[4 * (from + i / 2) + 2 * (i % 2)] += pairs[i].x;
        d[4 * (from + i / 2) + 2 * (i % 2) + 1] += pairs[i].y;
      }
    }
  }
};

// Operands of the epilogue that are read from memory when they are needed.
template <class T>
struct OperandsInMemory {
  template <int kRegs>
  __device__ void scale(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) const {
    ApplyScales::apply(d, p, at);
  }
  template <int kRegs>
  __device__ void add_residual(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) const {
    if (p.is_gated) {
      AddResidual<T, kRegs / 2>::apply(d, p, at);
    } else {
      AddResidual<T, kRegs>::apply(d, p, at);
    }
  }
};

// Operands of the epilogue that are loaded into registers before the product. While weights are
// streamed, a load queues behind them and takes 2 to 6 us, too long to wait for at the end of a
// product of 10 us. Blocks at the edge of the product, and gated products with a residual, still
// read memory when they need it.
template <class T, bool kHasScales, int kRegs>
class HeldOperands {
 public:
  __device__ void load(const EpilogueParams& p, BlockPlace at) {
    const bool is_inside = at.col / 8 * 8 + 2 * kRegs <= p.n;
    has_residual_ = is_inside && p.residual != nullptr && p.has_pairs && !p.is_gated;
    if (has_residual_) load_residual(p, at);
    if constexpr (kHasScales) {
      has_scales_ = is_inside && p.a_scale != nullptr && p.b_scale != nullptr &&
                    p.b_scale_stride != 0 && p.has_scale_pairs;
      if (has_scales_) load_scales(p, at);
    }
  }
  __device__ void scale(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) const {
    if constexpr (kHasScales) {
      if (has_scales_) {
        TESSERA_UNROLL
        for (int j = 0; j < kRegs / 4; ++j) ApplyScales::scale_eight(d, j, a_scale_, b_scale_[j]);
        return;
      }
    }
    memory_.scale(d, p, at);
  }
  __device__ void add_residual(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) const {
    if (!has_residual_) return memory_.add_residual(d, p, at);
    TESSERA_UNROLL
    for (int i = 0; i < kRegs / 2; ++i) {
      d[2 * i] += tile::to_float(residual_[i].values[0]);
      d[2 * i + 1] += tile::to_float(residual_[i].values[1]);
    }
  }

 private:
  struct alignas(2 * sizeof(T)) Pair {
    T values[2];
  };

  __device__ void load_residual(const EpilogueParams& p, BlockPlace at) {
    const T* residual = static_cast<const T*>(p.residual) + at.batch * p.residual_batch_stride +
                        at.row * p.residual_stride + at.col;
    TESSERA_UNROLL
    for (int h = 0; h < 2; ++h) {
      TESSERA_UNROLL
      for (int j = 0; j < kRegs / 4; ++j) {
        Pair& pair = residual_[2 * j + h];
        pair = {};
        if (at.row + 8 * h >= p.m) continue;
        pair = *reinterpret_cast<const Pair*>(residual + 8 * h * p.residual_stride + 8 * j);
      }
    }
  }
  __device__ void load_scales(const EpilogueParams& p, BlockPlace at) {
    TESSERA_UNROLL
    for (int h = 0; h < 2; ++h) {
      a_scale_[h] = p.a_scale[min(at.row + 8 * h, p.m - 1) * p.a_scale_stride];
    }
    const auto* pairs = reinterpret_cast<const float2*>(p.b_scale + at.col);
    TESSERA_UNROLL
    for (int j = 0; j < kRegs / 4; ++j) b_scale_[j] = __ldg(pairs + 4 * j);
  }

  OperandsInMemory<T> memory_;
  Pair residual_[kRegs / 2];
  float2 b_scale_[kHasScales ? kRegs / 4 : 1];
  float a_scale_[2];
  bool has_residual_ = false;
  bool has_scales_ = false;
};

// Everything between the product and the store.
template <class T, int kRegs, class Operands = OperandsInMemory<T>>
__device__ void transform(float (&d)[kRegs], const EpilogueParams& p, BlockPlace at,
                          const Operands& operands = {}) {
  if (p.a_scale != nullptr || p.b_scale != nullptr) operands.scale(d, p, at);
  if (p.bias != nullptr) AddBias<T>::apply(d, p, at);
  if (p.is_gated) {
    if constexpr (kRegs % 8 == 0) {
      with_activation<Gate, T>(p.activation, [&](auto step) { step.apply(d); });
    }
  } else if (p.has_activation) {
    with_activation<Activate, T>(p.activation, [&](auto step) { step.apply(d); });
  }
  if (p.residual != nullptr) operands.add_residual(d, p, at);
  if (p.out_scale != nullptr) {
    const float factor = 1.0f / *p.out_scale;
    TESSERA_UNROLL
    for (int i = 0; i < kRegs; ++i) d[i] *= factor;
    if (p.out_type == DType::i8) {  // symmetric: -128 is no code; NaN passes and becomes 0
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) d[i] = d[i] < -127.0f ? -127.0f : d[i];
    } else if (p.out_type == DType::e4m3) {
      TESSERA_UNROLL
      for (int i = 0; i < kRegs; ++i) d[i] = tile::nan_if_infinite(d[i]);
    }
  }
}

// Stores straight from registers, each lane its pairs. Four lanes write 16 bytes of a 16-bit row,
// so lines are completed in L2; a kernel for which that matters stages its tile in shared memory.
template <class Out, int kUsed, int kRegs>
__device__ void store_as(const float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
  const int first = out_col(p, at);
  const int num_cols = num_out_cols(p);
  TESSERA_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = at.row + 8 * h;
    if (row >= p.m) continue;
    Out* out = static_cast<Out*>(p.out) + at.batch * p.out_batch_stride + row * p.out_stride;
    TESSERA_UNROLL
    for (int j = 0; j < kUsed / 4; ++j) {
      const int col = first + 8 * j;
      store_pair(out + col, d[4 * j + 2 * h], d[4 * j + 2 * h + 1], num_cols - col, p.has_pairs);
    }
  }
}

// Stores in the type of out; T is the type of a.
template <class T, int kUsed, int kRegs>
__device__ void store_used(const float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
  switch (p.out_type) {
    case DType::f32: return store_as<float, kUsed>(d, p, at);
    case DType::e4m3: return store_as<E4m3, kUsed>(d, p, at);
    case DType::i8: return store_as<int8_t, kUsed>(d, p, at);
    default:
      if constexpr (!std::is_same_v<T, float>) store_as<T, kUsed>(d, p, at);
  }
}
template <class T, int kRegs>
__device__ void store_direct(const float (&d)[kRegs], const EpilogueParams& p, BlockPlace at) {
  if (p.is_gated) {
    store_used<T, kRegs / 2>(d, p, at);
  } else {
    store_used<T, kRegs>(d, p, at);
  }
}

}  // namespace tessera::kernels
