// The matrix product on the CPU: how it is cut into tasks for the threads, and its epilogue.
// SPDX-License-Identifier: MIT
#include "cpu/gemm.h"

#include <algorithm>
#include <optional>

#include "core/parallel.h"
#include "cpu/activation_row.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/gemm_kernel.h"
#include "cpu/gemm_operands.h"
#include "cpu/parallel.h"
#include "cpu/quant_code.h"
#include "cpu/scratch.h"

namespace tessera::cpu {
namespace {

// Below this many multiply-adds one thread is faster than waking the others.
constexpr int64_t kParallelProducts = 96 * 1024;
// Floats converted at once: they stay in the last-level cache while the other operand streams by.
constexpr int64_t kFloatsAtOnce = 1 << 20;
// A task's rows of b stay in the second-level cache while its rows of a stream by.
constexpr int64_t kTaskBytesOfB = 256 * 1024;
constexpr int64_t kTaskRows = 96;
// Enough tasks that the others need not wait for a thread that was interrupted.
constexpr int64_t kTasksPerThread = 4;
// Up to this many rows of a, widening FP8 in every tile is faster than once before the product.
constexpr int64_t kFewRows = 32;
// From this many rows of a on, i4 codes are unpacked once for all of them.
constexpr int64_t kManyRows = 12;
// Multiples of the rows and the columns of every tile.
constexpr int64_t kRowStep = 12;
constexpr int64_t kColStep = 4;

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
constexpr int64_t round_up(int64_t value, int64_t step) { return divide_up(value, step) * step; }

thread_local Scratch widened_scratch;   // rows of a as floats
thread_local Scratch weight_scratch;    // rows of a quantised b as floats
thread_local Scratch products_scratch;  // rows that an epilogue turns into rows of out

// All fields but a_floats.
GemmParams params_of(const GemmArgs& args) {
  GemmParams p{};
  p.a = args.a.data;
  p.b = args.b.values.data;
  p.bias = args.bias ? args.bias->data : nullptr;
  p.out = args.out.data;
  p.m = args.a.size(0);
  p.n = args.b.n();
  p.k = args.a.size(1);
  p.a_stride = args.a.stride(0);
  p.b_stride = args.b.values.stride(0);
  p.out_stride = args.out.stride(0);
  p.a_type = args.a.dtype;
  p.b_type = args.b.values.dtype;
  p.out_type = args.out.dtype;
  if (p.k == 0) return p;  // no segments: scales do not matter
  p.b_scale = args.b.scale ? args.b.scale->as<float>() : nullptr;
  p.num_segments = args.b.scale ? scale_layout(args.b).scales_per_row : 1;
  p.rows_per_scale = args.b.scale ? scale_layout(args.b).rows_per_scale : 1;
  p.b_table = args.b.table ? args.b.table->as<float>() : nullptr;
  p.segment = p.k / p.num_segments;
  p.segment_stride = round_up(p.segment, kGemmPad);
  return p;
}

// The grid of tasks over the rows and columns of out.
struct Tasks {
  int64_t rows, cols;  // of one task
  int64_t num_rows, num_cols;
};

Tasks cut(const GemmParams& p, int64_t num_threads) {
  Tasks tasks{};
  tasks.num_rows = divide_up(p.m, kTaskRows);
  tasks.rows = round_up(divide_up(p.m, tasks.num_rows), kRowStep);
  tasks.num_rows = divide_up(p.m, tasks.rows);
  const int64_t row_bytes = std::max<int64_t>(1, storage_bytes(p.b_type, p.k));
  const int64_t wanted = divide_up(num_threads * kTasksPerThread, tasks.num_rows);
  const int64_t cols = std::min(kTaskBytesOfB / row_bytes, divide_up(p.n, wanted));
  tasks.cols = std::max(kColStep, round_up(cols, kColStep));
  tasks.num_cols = divide_up(p.n, tasks.cols);
  return tasks;
}

// The functions of one instruction set. Those of i4 read its codes as they lie.
struct Kernels {
  void (*widen_rows)(const GemmParams&, GemmRange rows);
  void (*multiply)(const GemmParams&, GemmRange rows, GemmRange cols);
  void (*widen_rows_i4)(const GemmParams&, GemmRange rows);
  void (*multiply_i4)(const GemmParams&, GemmRange rows, GemmRange cols);
  GemmVnni vnni;        // null where the instruction set does not have it
  GemmVnni vnni_panel;  // the same, for many rows of a

  // The same with those of i4 in the place of the others.
  Kernels for_i4() const { return with({widen_rows_i4, multiply_i4}); }
  Kernels for_vnni(int64_t rows) const { return with(rows >= kManyRows ? vnni_panel : vnni); }
  Kernels with(const GemmVnni& tiles) const {
    return {tiles.widen_rows, tiles.multiply, widen_rows_i4, multiply_i4, vnni, vnni_panel};
  }
};

// Computes all rows of `p`. They are converted to floats first, unless a_floats is a itself.
void multiply_all(const GemmParams& p, const Kernels& kernels) {
  const bool widens = p.a_floats != p.a;
  const int threads = p.m * p.n * p.k <= kParallelProducts ? 1 : num_threads();
  if (threads == 1) {
    if (widens) kernels.widen_rows(p, {0, p.m});
    const Tasks tasks = cut(p, 1);
    for (int64_t col = 0; col < p.n; col += tasks.cols) {
      kernels.multiply(p, {0, p.m}, {col, std::min(p.n, col + tasks.cols)});
    }
    return;
  }
  if (widens) {
    parallel_for(divide_up(p.m, kRowStep), kRowStep * p.k, [&](int64_t step) {
      const int64_t row = step * kRowStep;
      kernels.widen_rows(p, {row, std::min(p.m, row + kRowStep)});
    });
  }
  const Tasks tasks = cut(p, threads);
  parallel_tasks(tasks.num_rows * tasks.num_cols, [&](int64_t task) {
    const int64_t row = task % tasks.num_rows * tasks.rows;
    const int64_t col = task / tasks.num_rows * tasks.cols;
    kernels.multiply(p, {row, std::min(p.m, row + tasks.rows)},
                     {col, std::min(p.n, col + tasks.cols)});
  });
}

// Whether the tiles read this weight as it is, for m rows of a: dense; or i8 or i4 in rows, with
// scales that cut each row into equal segments; or FP8 likewise for few rows, where the bits are
// those of the dequantised product. Other quantised weights are dequantised first.
bool is_read_in_place(const Weight& b, int64_t m) {
  if (!b.is_quantized()) return true;
  if (b.k() == 0 || b.packing != Packing::rows) return false;
  const ScaleLayout scales = scale_layout(b);
  if (scales.cols_per_scale * scales.scales_per_row != b.k()) return false;
  switch (b.values.dtype) {
    case DType::i8: return scales.rows_per_scale == 1;
    case DType::i4:
      return scales.rows_per_scale == 1 &&
             (scales.scales_per_row == 1 || scales.cols_per_scale % 8 == 0);
    case DType::e4m3:
    case DType::e5m2:
      return m <= kFewRows && (scales.scales_per_row == 1 || scales.cols_per_scale % kGemmPad == 0);
    default: return false;
  }
}

void multiply_matrix(const GemmArgs& args, const Kernels& kernels);

// Some rows of b at a time, as floats.
void multiply_dequantized(const GemmArgs& args, const Kernels& kernels) {
  const int64_t n = args.b.n(), k = args.b.k();
  const int64_t rows_at_once = round_up(kFloatsAtOnce / std::max<int64_t>(1, k) + 1, kColStep);
  float* floats = weight_scratch.take(std::min(n, rows_at_once) * k);
  for (int64_t row = 0; row < n; row += rows_at_once) {
    const int64_t end = std::min(n, row + rows_at_once);
    dequantize_rows(args.b, row, end, floats);
    GemmArgs part = args;
    part.b = TensorView::contiguous(floats, DType::f32, {end - row, k});
    if (args.bias) part.bias = args.bias->slice(0, row, end);
    part.out = args.out.slice(1, row, end);
    multiply_matrix(part, kernels);
  }
}

// All rows of a, some of them as floats at a time.
void multiply_widened(const GemmArgs& args, GemmParams p, const Kernels& kernels) {
  const int64_t m = p.m;
  const int64_t rows_at_once =
      round_up(kFloatsAtOnce / std::max<int64_t>(1, p.floats_stride) + 1, kRowStep);
  p.a_floats = widened_scratch.take(std::min(m, rows_at_once) * p.floats_stride);
  const int64_t a_bytes = bit_width(p.a_type) / 8 * p.a_stride * rows_at_once;
  const int64_t out_bytes = bit_width(p.out_type) / 8 * p.out_stride * rows_at_once;
  for (int64_t row = 0; row < m; row += rows_at_once) {
    p.m = std::min(rows_at_once, m - row);
    p.a = static_cast<const char*>(args.a.data) + row / rows_at_once * a_bytes;
    p.out = static_cast<char*>(args.out.data) + row / rows_at_once * out_bytes;
    multiply_all(p, kernels);
  }
}

// b is i4 in rows. The VNNI tiles take codes that are numbers and rows of a that are finite, the
// others all.
void multiply_nibbles(const GemmArgs& args, GemmParams p, const Kernels& kernels) {
  const bool has_vnni =
      kernels.vnni.multiply != nullptr && p.a_type != DType::f32 && p.b_table == nullptr;
  const std::optional<const uint8_t*> codes =
      has_vnni ? zero_codes(args.b) : std::optional<const uint8_t*>();
  if (codes) {
    for (int64_t row = 0; row < p.m;) {
      const RowRun run = finite_run(args.a, row);
      GemmArgs part = args;
      part.a = args.a.slice(0, row, run.end);
      part.out = args.out.slice(0, row, run.end);
      GemmParams q = params_of(part);
      q.b_zero_codes = *codes;
      q.floats_stride = divide_up(p.k, kGemmVnniBlock) * kGemmVnniBlockFloats;
      if (run.is_finite) {
        multiply_widened(part, q, kernels.for_vnni(q.m));
      } else {
        Kernels plain = kernels;
        plain.vnni = {};
        multiply_nibbles(part, q, plain);
      }
      row = run.end;
    }
    return;
  }
  const std::optional<const float*> zeros = float_zero_points(args.b);
  if (!zeros) return multiply_dequantized(args, kernels);
  p.b_zero = *zeros;
  p.floats_stride = round_up(p.k, kGemmI4Pad);
  multiply_widened(args, p, kernels.for_i4());
}

// out = a . b^T + bias, rounded: one matrix, no epilogue.
void multiply_matrix(const GemmArgs& args, const Kernels& kernels) {
  if (!is_read_in_place(args.b, args.a.size(0))) return multiply_dequantized(args, kernels);
  GemmParams p = params_of(args);
  if (p.m == 0 || p.n == 0) return;
  if (p.b_type == DType::i4) return multiply_nibbles(args, p, kernels);
  if (p.a_type == DType::f32 && p.segment % kGemmPad == 0) {
    p.a_floats = args.a.as<float>();
    p.floats_stride = p.a_stride;
    p.segment_stride = p.segment;
    multiply_all(p, kernels);
    return;
  }
  p.floats_stride = p.num_segments * p.segment_stride;
  multiply_widened(args, p, kernels);
}

// Whether out is more than the rounded sum of products and bias.
bool has_epilogue(const GemmArgs& args) {
  return args.activation.has_value() || args.residual.has_value() || args.out_scale.has_value() ||
         args.a_scale.has_value();
}

// gated[i] = f(gate[i]) * up[i]; the row holds 8 values of gate, the same 8 of up, and so on.
void gate_row(const float* row, int64_t num_cols, ActivateRow activate, float* gated) {
  constexpr int64_t kRows = kGateUpRows;
  for (int64_t i = 0; i < num_cols; i += kRows) {
    for (int64_t j = 0; j < kRows; ++j) gated[i + j] = row[2 * i + j];
  }
  activate(gated, num_cols);
  for (int64_t i = 0; i < num_cols; i += kRows) {
    for (int64_t j = 0; j < kRows; ++j) gated[i + j] *= row[2 * i + kRows + j];
  }
}

void add_residual(const TensorView& residual, int64_t row, int64_t num_cols, float* values) {
  with_float_type(residual.dtype, [&](auto type) {
    using T = decltype(type);
    const T* from = residual.as<T>() + row * residual.stride(0);
    for (int64_t i = 0; i < num_cols; ++i) values[i] += to_float(from[i]);
  });
}

template <class Code>
void store_codes(const float* values, int64_t num_cols, float factor, Code* out) {
  for (int64_t i = 0; i < num_cols; ++i) out[i] = byte_code<Code>(values[i] * factor);
}

// Codes by the reciprocal of the scale, as quantize computes them.
void store(const GemmArgs& args, int64_t row, int64_t num_cols, const float* values) {
  const TensorView& out = args.out;
  const int64_t at = row * out.stride(0);
  const float factor = args.out_scale ? 1.0f / *args.out_scale->as<float>() : 1.0f;
  switch (out.dtype) {
    case DType::e4m3: return store_codes(values, num_cols, factor, out.as<E4m3>() + at);
    case DType::i8: return store_codes(values, num_cols, factor, out.as<int8_t>() + at);
    default:
      with_float_type(out.dtype, [&](auto type) {
        store_row(values, num_cols, out.as<decltype(type)>() + at);
      });
  }
}

// Turns `products`, [m, n] floats with the bias added, into out; they are used as scratch. Every
// element is computed by itself, so a row has the same bits in any batch.
void finish_rows(const GemmArgs& args, float* products) {
  const int64_t n = args.b.n(), num_cols = args.out.size(1);
  const ActivateRow activate = args.activation ? activate_row(*args.activation) : nullptr;
  for_each_row(args.out.size(0), n, num_cols, [&](int64_t row, float* gated) {
    float* values = products + row * n;
    if (args.is_gated) {
      gate_row(values, num_cols, activate, gated);
      values = gated;
    } else if (activate != nullptr) {
      activate(values, num_cols);
    }
    if (args.residual) add_residual(*args.residual, row, num_cols, values);
    store(args, row, num_cols, values);
  });
}

// The scales and zero points of rows [begin, end) of a.
void take_scales(const GemmArgs& args, int64_t begin, int64_t end, GemmArgs& part) {
  if (args.a_scale->num_elements() > 1) part.a_scale = args.a_scale->slice(0, begin, end);
  if (args.a_zero_point && args.a_zero_point->num_elements() > 1) {
    part.a_zero_point = args.a_zero_point->slice(0, begin, end);
  }
}

// The same with an epilogue: some rows of products at a time, which stay in the last-level cache.
void multiply_and_finish(const GemmArgs& args, const Kernels& kernels) {
  const int64_t m = args.a.size(0), n = args.b.n();
  if (m == 0 || n == 0) return;
  const int64_t rows_at_once = round_up(kFloatsAtOnce / n + 1, kRowStep);
  float* products = products_scratch.take(std::min(m, rows_at_once) * n);
  for (int64_t row = 0; row < m; row += rows_at_once) {
    const int64_t end = std::min(m, row + rows_at_once);
    GemmArgs part = args;
    part.a = args.a.slice(0, row, end);
    if (args.a_scale) {
      take_scales(args, row, end, part);
      multiply_codes(part, products);
    } else {
      part.out = TensorView::contiguous(products, DType::f32, {end - row, n});
      multiply_matrix(part, kernels);
    }
    part.out = args.out.slice(0, row, end);
    if (args.residual) part.residual = args.residual->slice(0, row, end);
    finish_rows(part, products);
  }
}

// One matrix of a tensor that may have a batch of them.
TensorView matrix_of(const TensorView& tensor, int64_t index) {
  if (tensor.rank == 2) return tensor;
  TensorView matrix = tensor;
  matrix.rank = 2;
  matrix.shape = {tensor.size(1), tensor.size(2)};
  matrix.strides = {tensor.stride(1), tensor.stride(2)};
  const int64_t offset = bit_width(tensor.dtype) / 8 * index * tensor.stride(0);
  if (tensor.data != nullptr) matrix.data = static_cast<char*>(tensor.data) + offset;
  return matrix;
}

// The columns of a in the order of those of b.
Tensor sorted_columns(const TensorView& a, const TensorView& order) {
  Tensor sorted(a.dtype, std::span(a.shape.data(), static_cast<size_t>(a.rank)));
  const int64_t k = a.size(-1), num_rows = k == 0 ? 0 : a.num_elements() / k;
  const auto* columns = order.as<int32_t>();
  with_float_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(num_rows, k, [&](int64_t row) {
      const int64_t m = a.size(-2);
      const T* from =
          a.as<T>() + row % m * a.stride(-2) + (a.rank == 3 ? row / m * a.stride(0) : 0);
      T* to = sorted.view().as<T>() + row * k;
      for (int64_t i = 0; i < k; ++i) to[i] = from[columns[i]];
    });
  });
  return sorted;
}

}  // namespace

void gemm(const GemmArgs& args, SimdLevel level) {
  if (args.b.order) {
    const Tensor sorted = sorted_columns(args.a, *args.b.order);
    GemmArgs plain = args;
    plain.a = sorted;
    plain.b.order.reset();
    return gemm(plain, level);
  }
  static const SimdBuilds widen_rows = gemm_widen_rows_builds();
  static const SimdBuilds multiply = gemm_multiply_builds();
  static const SimdBuilds widen_rows_i4 = gemm_i4_widen_rows_builds();
  static const SimdBuilds multiply_i4 = gemm_i4_multiply_builds();
  const bool has_vnni = level == SimdLevel::avx512;
  const Kernels kernels{widen_rows.at(level),
                        multiply.at(level),
                        widen_rows_i4.at(level),
                        multiply_i4.at(level),
                        has_vnni ? gemm_i4_vnni() : GemmVnni{},
                        has_vnni ? gemm_i4_panel() : GemmVnni{}};
  const auto one_matrix = has_epilogue(args) ? &multiply_and_finish : &multiply_matrix;
  if (args.a.rank == 2) return one_matrix(args, kernels);
  for (int64_t i = 0; i < args.a.size(0); ++i) {
    GemmArgs one = args;
    one.a = matrix_of(args.a, i);
    one.b.values = matrix_of(args.b.values, i);
    one.out = matrix_of(args.out, i);
    if (args.residual) one.residual = matrix_of(*args.residual, i);
    one_matrix(one, kernels);
  }
}

void gemm(const GemmArgs& args) { gemm(args, simd_levels().back()); }

}  // namespace tessera::cpu
