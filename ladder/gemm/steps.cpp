// The rows of the ladder, and the vendor's kernel beside them.
// SPDX-License-Identifier: MIT
#include "ladder/gemm/steps.h"

#include "core/text.h"
#include "ladder/gemm/gemm_args.h"
#include "ladder/steps.h"
#include "tessera/core/error.h"

namespace tessera::ladder {
namespace {

constexpr Multiples kAny{1, 1, 1};
constexpr Multiples kF32Tiles{128, 128, 16};
constexpr Multiples kBf16Tiles{128, 128, 64};
constexpr Multiples kWideTiles{128, 256, 64};
constexpr Multiples kPairsOfTiles{256, 256, 64};

// clang-format off
constexpr Step kSteps[] = {
    {"01_naive", "01_naive.cu", DType::f32, Library::portable, kAny, &launch_naive},
    {"02_coalesced", "02_coalesced.cu", DType::f32, Library::portable, kAny, &launch_coalesced},
    {"03_shared_tile", "03_shared_tile.cu", DType::f32, Library::portable, kAny,
     &launch_shared_tile},
    {"04_register_tile", "04_register_tile.cu", DType::f32, Library::portable, kAny,
     &launch_register_tile},
    {"05_vectorised", "05_vectorised.cu", DType::f32, Library::portable, kF32Tiles,
     &launch_vectorised},
    {"06_double_buffered", "06_double_buffered.cu", DType::f32, Library::portable, kF32Tiles,
     &launch_double_buffered},
    {"07_wmma", "07_wmma.cu", DType::bf16, Library::portable, kBf16Tiles, &launch_wmma},
    {"08_mma_swizzle", "08_mma_swizzle.cu", DType::bf16, Library::portable, kBf16Tiles,
     &launch_mma_swizzle},
    {"09_cp_async", "09_cp_async.cu", DType::bf16, Library::portable, kBf16Tiles,
     &launch_cp_async},
    {"10_wgmma_tma", "10_wgmma_tma.cu", DType::bf16, Library::sm90, kBf16Tiles,
     &launch_wgmma_tma},
    {"11_warp_specialised", "11_warp_specialised.cu", DType::bf16, Library::sm90, kWideTiles,
     &launch_warp_specialised},
    {"12_persistent", "12_persistent.cu", DType::bf16, Library::sm90, kWideTiles,
     &launch_persistent},
    {"13_clusters", "13_clusters.cu", DType::bf16, Library::sm90, kPairsOfTiles,
     &launch_clusters},
    {"14_production", "14_production.cpp", DType::bf16, Library::portable, kAny,
     &launch_production, &has_production},
};
// clang-format on

Context vendor_context(DType dtype, Stream stream) {
  return {.stream = stream,
          .row = dtype == DType::f32 ? "gemm_cublaslt_f32" : "gemm_cublaslt_bf16"};
}

}  // namespace

std::span<const Step> steps() { return kSteps; }

const Step& find_step(std::string_view name) { return find_by_name(steps(), name); }

std::string missing(const Step& step) { return why_missing(step.library, step.is_present); }

void run(const Step& step, const Problem& problem, const Context& ctx) {
  if (!step.accepts(problem.m, problem.n, problem.k)) {
    const Multiples& of = step.multiples;
    fail(concat("ladder: ", step.name, " got m ", problem.m, ", n ", problem.n, ", k ", problem.k,
                "; they must be multiples of ", of.m, ", ", of.n, ", ", of.k));
  }
  step.launch(problem, ctx);
}

bool has_cublas(DType dtype, const Problem& problem) {
  return num_cuda_devices() > 0 &&
         supports(gemm_args(dtype, problem), vendor_context(dtype, nullptr));
}

void run_cublas(DType dtype, const Problem& problem, const Context& ctx) {
  gemm(gemm_args(dtype, problem), vendor_context(dtype, ctx.stream));
}

}  // namespace tessera::ladder
