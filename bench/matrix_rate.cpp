// One product through cuBLASLt, with the algorithm that it puts first.
// SPDX-License-Identifier: MIT
#include "bench/matrix_rate.h"

#include "bench/timer.h"
#include "core/cublaslt.h"

namespace tessera::bench {
namespace {

constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

}  // namespace

double measure_matrix_tflops(Device device, int64_t n, const void* a, const void* b, void* d,
                             std::string& why) {
  const CublasLt* lt = cublaslt();
  if (lt == nullptr) {
    why = "libcublasLt was not found, so no matrix rate; add its folder to LD_LIBRARY_PATH";
    return 0;
  }
  const DeviceGuard guard(device);
  cublasLtHandle_t handle = cublaslt_handle();
  if (handle == nullptr) {
    why = "cublasLtCreate failed, so no matrix rate";
    return 0;
  }
  // D = A . B^T in row-major terms: cuBLASLt, column-major, sees d^T = b . a^T with b transposed.
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t layout;
  cublasLtMatmulPreferenceOpaque_t preference;
  lt->init_desc(&desc, sizeof desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  lt->set_desc(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  const auto size = static_cast<uint64_t>(n);
  lt->init_layout(&layout, sizeof layout, CUDA_R_16BF, size, size, n);
  lt->init_preference(&preference, sizeof preference);
  lt->set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                     sizeof kWorkspaceBytes);
  cublasLtMatmulHeuristicResult_t choice{};
  int num_choices = 0;
  lt->heuristic(handle, &desc, &layout, &layout, &layout, &layout, &preference, 1, &choice,
                &num_choices);
  if (num_choices == 0) {
    why = "cuBLASLt offers no bf16 product on this device";
    return 0;
  }
  const Tensor workspace(DType::u8, {static_cast<int64_t>(kWorkspaceBytes)}, device);
  bool is_ok = true;
  const float one = 1.0f, zero = 0.0f;
  const Call product = [&](int64_t, const Context& ctx) {
    is_ok = lt->matmul(handle, &desc, &one, b, &layout, a, &layout, &zero, d, &layout, d, &layout,
                       &choice.algo, workspace.view().data, kWorkspaceBytes,
                       ctx.stream) == CUBLAS_STATUS_SUCCESS &&
            is_ok;
  };
  product(0, {});  // loads the kernel, which a capture must not
  synchronize(device);
  const Timing timing = time_calls(device, 1, product, {.seconds = 0.2});
  if (!is_ok) {
    why = "cublasLtMatmul failed, so no matrix rate";
    return 0;
  }
  const auto edge = static_cast<double>(n);
  return 2.0 * edge * edge * edge / timing.us * 1e-6;
}

}  // namespace tessera::bench
