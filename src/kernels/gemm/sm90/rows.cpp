// The matrix product's table of the sm90 library: what its rows take, and the plan they run by.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

#include "kernels/gemm/sm90/plan.h"
#include "tessera/core/device.h"

namespace tessera::kernels {
namespace {

// Whether TMA can copy the rows: they start at multiples of 16 bytes.
bool is_copied_in_chunks(const TensorView& t) {
  constexpr int64_t kChunk = 8;  // 16-bit elements in 16 bytes
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
          .stages_out = args.out.dtype == args.a.dtype && is_copied_in_chunks(args.out) &&
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
    launch_one_warpgroup<T>(args, plan, ctx);
  } else {
    launch_two_warpgroups<T>(args, plan, ctx);
  }
}

// One launcher stores every type of out.
template <class T>
constexpr Row<GemmArgs> row(DType out) {
  return {"gemm", Library::sm90, {dtype_of<T>, out}, &launch_gemm<T>, {}, &accepts, true, &yields};
}

constexpr Row<GemmArgs> kRows[] = {
    row<Bf16>(DType::bf16), row<Bf16>(DType::f32), row<Bf16>(DType::e4m3), row<Bf16>(DType::i8),
    row<F16>(DType::f16),   row<F16>(DType::f32),  row<F16>(DType::e4m3),  row<F16>(DType::i8),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return kRows; }

}  // namespace tessera::kernels
