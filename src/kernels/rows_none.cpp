// The empty tables of a build without CUDA.
// SPDX-License-Identifier: MIT
#include "kernels/elementwise/rows.h"
#include "kernels/gemm/rows.h"
#include "kernels/gemm/sparse/rows.h"

namespace tessera::kernels {
namespace {

constexpr ElementwiseRows kNoElementwiseRows{};

}  // namespace

const ElementwiseRows& elementwise_rows_sm90() { return kNoElementwiseRows; }
const ElementwiseRows& elementwise_rows() { return kNoElementwiseRows; }

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return {}; }
std::span<const Row<GemmArgs>> gemm_rows() { return {}; }
std::span<const Row<GemmArgs>> gemm_rows_cublaslt() { return {}; }
std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return {}; }

}  // namespace tessera::kernels
