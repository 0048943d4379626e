// What the Hopper rows take, and the plan they run it by.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/sm90/launch_sm90.h"

#include "tessera/core/device.h"

namespace tessera::kernels {
namespace {

bool is_copied_in_chunks(const TensorView& t) {
  constexpr int64_t kChunk = 8;  // elements of 16 bits in 16 bytes
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0 && t.stride(-2) % kChunk == 0 &&
         (t.rank < 3 || t.stride(0) % kChunk == 0);
}

Sm90Problem problem_of(const GemmArgs& args) {
  const DeviceInfo& device = device_info(args.a.device);
  return {.m = args.a.size(-2),
          .n = args.b.size(-2),
          .k = args.a.size(-1),
          .batch = args.a.rank == 3 ? args.a.size(0) : 1,
          .is_gated = args.is_gated,
          .stages_out = args.out.dtype == args.a.dtype && is_copied_in_chunks(args.out) &&
                        args.out.size(-1) % 8 == 0,
          .num_sms = device.num_sms,
          .shared_bytes = device.shared_bytes_per_block};
}

}  // namespace

bool accepts_sm90(const GemmArgs& args) {
  return args.b.dtype == args.a.dtype && args.a.size(-1) > 0 && args.a.size(-1) % 64 == 0 &&
         is_copied_in_chunks(args.a) && is_copied_in_chunks(args.b);
}

bool yields_sm90(const GemmArgs& args) { return is_better_yielded(problem_of(args)); }

template <class T>
void launch_gemm_sm90(const GemmArgs& args, const Context& ctx) {
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

template void launch_gemm_sm90<Bf16>(const GemmArgs&, const Context&);
template void launch_gemm_sm90<F16>(const GemmArgs&, const Context&);

}  // namespace tessera::kernels
