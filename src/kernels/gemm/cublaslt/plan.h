// How cuBLASLt computes one product: layouts and an algorithm, found once and remembered.
// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/cublaslt.h"
#include "kernels/gemm/cublaslt/product.h"

namespace tessera::kernels {

// The most scratch memory an algorithm may use: what NVIDIA recommends for Hopper.
inline constexpr size_t kCublasLtWorkspaceBytes = size_t{32} << 20;

struct Algorithm {
  cublasLtMatmulAlgo_t choice;
  size_t workspace_bytes = 0;  // many need none
};

// The library is column-major and computes the transposed product, out^T[n, m] = b . a^T: its first
// operand is b, stored transposed, and its second is a.
struct Plan {
  cublasLtMatrixLayoutOpaque_t a;
  cublasLtMatrixLayoutOpaque_t b;
  cublasLtMatrixLayoutOpaque_t c;
  cublasLtMatrixLayoutOpaque_t d;
  Algorithm algorithm;
  bool is_supported = false;  // the library offers an algorithm
  bool is_timed = false;      // the fastest of those timed, not merely the first offered
};

// The addresses of one call.
struct Operands {
  const void* a;
  const void* b;
  const void* bias;  // null: none
  const void* c;
  void* d;
};

// The algorithms that the library offers, best first by its own estimate; may be empty.
inline constexpr int kMaxCandidates = 8;
std::vector<Algorithm> query_algorithms(const Product& product, const Operands& operands,
                                        Plan& plan);

// `workspace` has at least algorithm.workspace_bytes.
cublasStatus_t run_algorithm(const Product& product, const Operands& operands, Plan& plan,
                             const Algorithm& algorithm, void* workspace, Stream stream);

// The plan of a product on the current device: a known one, or one with the first algorithm
// offered.
std::shared_ptr<Plan> find_plan(const Product& product, const Operands& operands);
// Replaces the known plan.
void keep_plan(const Product& product, std::shared_ptr<Plan> plan);

}  // namespace tessera::kernels
