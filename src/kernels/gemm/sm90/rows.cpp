// The matrix product's table of the sm90 library: what its rows take, and the plan they run by.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/gemm/normed.h"
#include "kernels/gemm/sm90/plan.h"
#include "kernels/gemm/w4/launch.h"
#include "kernels/with_constant.h"
#include "tessera/core/device.h"

namespace tessera::kernels {
namespace {

// Whether TMA can copy the rows: they start at multiples of 16 bytes.
bool is_copied_in_chunks(const TensorView& t) {
  const int64_t kChunk = 128 / bit_width(t.dtype);  // elements in 16 bytes
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride(-2) % kChunk == 0 &&
         (t.rank < 3 || t.stride(0) % kChunk == 0);
}

Sm90Problem problem_of(const GemmArgs& args) {
  const DeviceInfo& device = device_info(args.a.device);
  return {.m = args.a.size(-2),
          .n = args.b.n(),
          .k = args.a.size(-1),
          .batch = args.a.rank == 3 ? args.a.size(0) : 1,
          .is_gated = args.is_gated,
          .stages_out = args.out.dtype == value_type(args) && is_copied_in_chunks(args.out) &&
                        args.out.size(-1) % 8 == 0,
          .num_sms = device.num_sms,
          .shared_bytes = device.shared_bytes_per_block};
}

bool accepts(const GemmArgs& args) {
  return args.a.size(-1) > 0 && args.a.size(-1) % 64 == 0 && is_copied_in_chunks(args.a) &&
         is_copied_in_chunks(args.b.values);
}

// Where cuBLASLt is faster.
bool yields(const GemmArgs& args) { return is_better_yielded(problem_of(args)); }

// Splits k where that is faster, unless a row's bits may not depend on m.
template <class T>
void launch_gemm(const GemmArgs& args, const Context& ctx) {
  const Sm90Problem problem = problem_of(args);
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return;
  if (!ctx.batch_invariant) {
    if (const std::optional<Sm90Plan> split = plan_sm90_split(problem)) {
      return launch_split<T>(args, *split, ctx);
    }
  }
  const Sm90Plan plan = plan_sm90(problem);
  if (plan.shape.warpgroups == 1) {
    launch_one_warpgroup<T>(args, nullptr, plan, ctx);
  } else {
    launch_two_warpgroups<T>(args, plan, ctx);
  }
}

// Whether a scale changes along k, or sums of FP8 must be floats.
bool promotes(const GemmArgs& args) {
  return args.a_scale->rank == 2 || args.b.scale->rank == 2 || args.sums_in_float;
}

// Scales of blocks are those of 128 elements of k, by 128 rows of b or by one.
bool accepts_codes(const GemmArgs& args) {
  const int64_t k = args.a.size(-1);
  const Weight& b = args.b;
  if (b.scale->rank == 2) {
    const ScaleLayout scales = scale_layout(b);
    if (scales.cols_per_scale != kPromotedK) return false;
    if (scales.rows_per_scale != 1 && scales.rows_per_scale != 128) return false;
  }
  return k > 0 && k % kPromotedK == 0 && value_type(args) != DType::f32 &&
         is_copied_in_chunks(args.a) && is_copied_in_chunks(b.values) &&
         (!args.a_zero_point || !promotes(args));
}

template <class In>
Sm90Problem problem_of_codes(const GemmArgs& args) {
  Sm90Problem problem = problem_of(args);
  problem.k /= 2;
  problem.operands = std::is_unsigned_v<In>   ? Sm90Operands::unsigned_int8
                     : promotes(args)         ? Sm90Operands::promoted
                     : std::is_integral_v<In> ? Sm90Operands::int8
                                              : Sm90Operands::fp8;
  return problem;
}

template <class In, class T>
void launch_codes_gemm(const GemmArgs& args, const Context& ctx) {
  const Sm90Problem problem = problem_of_codes<In>(args);
  if (problem.m == 0 || problem.n == 0) return;
  const Sm90Plan plan = plan_sm90(problem);
  if constexpr (std::is_unsigned_v<In>) {
    launch_unsigned<T>(args, plan, ctx);
  } else if (plan.shape.promotes) {
    launch_promoted<In, T>(args, plan, ctx);
  } else if (plan.shape.warpgroups == 1) {
    launch_codes_1<In, T>(args, nullptr, plan, ctx);
  } else {
    launch_codes_2<In, T>(args, plan, ctx);
  }
}

template <class In, class T>
constexpr Row<GemmArgs> codes_row(DType out) {
  const DType weight = std::is_integral_v<In> ? DType::i8 : dtype_of<In>;
  return {"gemm", Library::sm90, {dtype_of<In>, out, weight}, &launch_codes_gemm<In, T>,
          {},     &accepts_codes};
}

// One launcher stores every type of out.
template <class T>
constexpr Row<GemmArgs> row(DType out) {
  return {"gemm", Library::sm90, {dtype_of<T>, out}, &launch_gemm<T>, {}, &accepts, true, &yields};
}

// The group of a 4-bit weight as W4Tile names it; -1: one that no kernel has.
int w4_group(const Weight& weight) {
  const ScaleLayout scales = scale_layout(weight);
  if (scales.rows_per_scale != 1) return -1;
  if (scales.scales_per_row == 1) return 0;
  const int64_t group = scales.cols_per_scale;
  return group == 32 || group == 64 || group == 128 ? static_cast<int>(group) : -1;
}

bool starts_at_16(const std::optional<TensorView>& t) {
  return !t || reinterpret_cast<uintptr_t>(t->data) % 16 == 0;
}

bool accepts_w4(const GemmArgs& args) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const Weight& b = args.b;
  const int64_t batch = args.a.rank == 3 ? args.a.size(0) : 1;
  return b.n() % 64 == 0 && b.k() > 0 && b.k() % kW4StageK == 0 && w4_group(b) >= 0 && !b.order &&
         (!b.zero_point || b.zero_point->dtype == DType::u8) && is_copied_in_chunks(args.a) &&
         starts_at_16(b.values) && starts_at_16(b.scale) && starts_at_16(b.zero_point) &&
         args.a.size(-2) * b.n() / 2048 * std::max<int64_t>(1, batch) < kMost;
}

W4Problem w4_problem_of(const GemmArgs& args) {
  const DeviceInfo& device = device_info(args.a.device);
  return {.m = args.a.size(-2),
          .n = args.b.n(),
          .k = args.a.size(-1),
          .batch = args.a.rank == 3 ? args.a.size(0) : 1,
          .group = w4_group(args.b),
          .has_zero_points = args.b.zero_point.has_value(),
          .num_sms = device.num_sms,
          .shared_bytes = device.shared_bytes_per_block};
}

template <class T>
void launch_w4_gemm(const GemmArgs& args, const Context& ctx) {
  const W4Problem problem = w4_problem_of(args);
  if (problem.m == 0 || problem.n == 0 || problem.batch == 0) return;
  const std::optional<W4FewPlan> few = plan_w4_few(problem);
  const bool is_found = with_constant<0, 32, 64, 128>(problem.group, [&](auto group) {
    if (few) {
      launch_w4_few<T, group()>(args, nullptr, *few, ctx);
    } else {
      launch_w4<T, group()>(args, plan_w4(problem), ctx);
    }
  });
  expects(is_found, "gemm: the plan names a group that is not compiled");
}

template <class T>
constexpr Row<GemmArgs> w4_row(DType out) {
  return {"gemm",
          Library::sm90,
          {dtype_of<T>, out, DType::i4, Packing::fragments},
          &launch_w4_gemm<T>,
          {},
          &accepts_w4,
          true,
          nullptr,
          &launch_pack_fragments<Portable>};
}

// Products of one row that begin with its norm.
template <class T>
bool accepts_normed(const NormGemmArgs& args) {
  return can_norm_inside(args) && accepts(args.gemm) &&
         plan_sm90_normed(problem_of(args.gemm)).has_value();
}
template <class T>
void launch_normed(const NormGemmArgs& args, const Context& ctx) {
  launch_one_warpgroup<T>(args.gemm, &args.norm, *plan_sm90_normed(problem_of(args.gemm)), ctx);
}
template <class T>
constexpr Row<NormGemmArgs> normed_row(DType out) {
  return {"norm_gemm", Library::sm90,     {dtype_of<T>, out}, &launch_normed<T>,
          {},          &accepts_normed<T>};
}

template <class In, class T>
bool accepts_normed_codes(const NormGemmArgs& args) {
  return can_norm_inside(args) && args.norm.x.dtype == dtype_of<T> && accepts_codes(args.gemm) &&
         !args.gemm.a_zero_point && plan_sm90_normed(problem_of_codes<In>(args.gemm)).has_value();
}
template <class In, class T>
void launch_normed_codes(const NormGemmArgs& args, const Context& ctx) {
  launch_codes_1<In, T>(args.gemm, &args.norm, *plan_sm90_normed(problem_of_codes<In>(args.gemm)),
                        ctx);
}
template <class In, class T>
constexpr Row<NormGemmArgs> normed_codes_row(DType out) {
  return {"norm_gemm",
          Library::sm90,
          {dtype_of<In>, out},
          &launch_normed_codes<In, T>,
          {},
          &accepts_normed_codes<In, T>};
}

W4Problem normed_w4_problem_of(const GemmArgs& args) {
  W4Problem problem = w4_problem_of(args);
  problem.is_normed = true;
  return problem;
}

template <class T>
bool accepts_normed_w4(const NormGemmArgs& args) {
  if (!can_norm_inside(args) || !accepts_w4(args.gemm)) return false;
  const std::optional<W4FewPlan> plan = plan_w4_few(normed_w4_problem_of(args.gemm));
  return plan && plan->num_warps >= kNormedWarps;
}
template <class T>
void launch_normed_w4(const NormGemmArgs& args, const Context& ctx) {
  const W4Problem problem = normed_w4_problem_of(args.gemm);
  const W4FewPlan plan = *plan_w4_few(problem);
  const bool is_found = with_constant<0, 32, 64, 128>(problem.group, [&](auto group) {
    launch_w4_few<T, group()>(args.gemm, &args.norm, plan, ctx);
  });
  expects(is_found, "norm_gemm: the plan names a group that is not compiled");
}
template <class T>
constexpr Row<NormGemmArgs> normed_w4_row(DType out) {
  return {"norm_gemm",
          Library::sm90,
          {dtype_of<T>, out, DType::i4, Packing::fragments},
          &launch_normed_w4<T>,
          {},
          &accepts_normed_w4<T>};
}

constexpr Row<NormGemmArgs> kNormedRows[] = {
    normed_row<Bf16>(DType::bf16),
    normed_row<Bf16>(DType::f32),
    normed_row<F16>(DType::f16),
    normed_row<F16>(DType::f32),
    normed_w4_row<Bf16>(DType::bf16),
    normed_w4_row<Bf16>(DType::f32),
    normed_w4_row<F16>(DType::f16),
    normed_w4_row<F16>(DType::f32),
    normed_codes_row<E4m3, Bf16>(DType::bf16),
    normed_codes_row<E4m3, F16>(DType::f16),
    normed_codes_row<E4m3, Bf16>(DType::f32),
    normed_codes_row<int8_t, Bf16>(DType::bf16),
    normed_codes_row<int8_t, F16>(DType::f16),
    normed_codes_row<int8_t, Bf16>(DType::f32),
};

constexpr Row<GemmArgs> kRows[] = {
    row<Bf16>(DType::bf16),
    row<Bf16>(DType::f32),
    row<Bf16>(DType::e4m3),
    row<Bf16>(DType::i8),
    row<F16>(DType::f16),
    row<F16>(DType::f32),
    row<F16>(DType::e4m3),
    row<F16>(DType::i8),

    w4_row<Bf16>(DType::bf16),
    w4_row<Bf16>(DType::f32),
    w4_row<Bf16>(DType::e4m3),
    w4_row<Bf16>(DType::i8),
    w4_row<F16>(DType::f16),
    w4_row<F16>(DType::f32),
    w4_row<F16>(DType::e4m3),
    w4_row<F16>(DType::i8),

    codes_row<E4m3, Bf16>(DType::bf16),
    codes_row<E4m3, F16>(DType::f16),
    codes_row<E4m3, Bf16>(DType::f32),
    codes_row<E4m3, Bf16>(DType::e4m3),
    codes_row<int8_t, Bf16>(DType::bf16),
    codes_row<int8_t, F16>(DType::f16),
    codes_row<int8_t, Bf16>(DType::f32),
    codes_row<int8_t, Bf16>(DType::i8),
    codes_row<uint8_t, Bf16>(DType::bf16),
    codes_row<uint8_t, Bf16>(DType::f32),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return kRows; }
std::span<const Row<NormGemmArgs>> norm_gemm_rows_sm90() { return kNormedRows; }

}  // namespace tessera::kernels
