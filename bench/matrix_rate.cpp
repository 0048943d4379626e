// cuBLASLt by dlopen: the bench needs its one product, the library is not linked.
// SPDX-License-Identifier: MIT
#include "bench/matrix_rate.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include "bench/timer.h"
#include "core/cuda_check.h"

namespace tessera::bench {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// What is used of the library. Descriptors and layouts are plain structs in its header, with
// inline functions over these three.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;

  // True when every function was found.
  bool load(void* library) {
    const auto find = [library](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find(create, "cublasLtCreate") && find(destroy, "cublasLtDestroy") &&
           find(desc_create, "cublasLtMatmulDescCreate") &&
           find(desc_destroy, "cublasLtMatmulDescDestroy") &&
           find(desc_set, "cublasLtMatmulDescSetAttribute") &&
           find(layout_create, "cublasLtMatrixLayoutCreate") &&
           find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           find(preference_create, "cublasLtMatmulPreferenceCreate") &&
           find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           find(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           find(heuristic, "cublasLtMatmulAlgoGetHeuristic") && find(matmul, "cublasLtMatmul");
  }
};

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                           "/usr/local/cuda/lib64/libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

}  // namespace

double measure_matrix_tflops(Device device, int64_t n, const void* a, const void* b, void* d,
                             std::string& why) {
  CublasLt lt;
  void* library = open_library();
  if (library == nullptr || !lt.load(library)) {
    why = "libcublasLt was not found, so no matrix rate; add its folder to LD_LIBRARY_PATH";
    return 0;
  }
  const DeviceGuard guard(device);
  cublasLtHandle_t handle = nullptr;
  if (lt.create(&handle) != CUBLAS_STATUS_SUCCESS) {
    why = "cublasLtCreate failed, so no matrix rate";
    return 0;
  }
  // D = A . B^T in row-major terms: cuBLASLt, column-major, sees d^T = b . a^T with b transposed.
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  lt.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  lt.desc_set(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  const auto size = static_cast<uint64_t>(n);
  lt.layout_create(&layout, CUDA_R_16BF, size, size, n);
  lt.preference_create(&preference);
  lt.preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes,
                    sizeof kWorkspaceBytes);
  cublasLtMatmulHeuristicResult_t choice{};
  int num_choices = 0;
  lt.heuristic(handle, desc, layout, layout, layout, layout, preference, 1, &choice, &num_choices);
  double tflops = 0;
  if (num_choices == 0) {
    why = "cuBLASLt offers no bf16 product on this device";
  } else {
    void* workspace = allocate(device, kWorkspaceBytes);
    bool is_ok = true;
    const float one = 1.0f, zero = 0.0f;
    const Call product = [&](int64_t, const Context& ctx) {
      is_ok = lt.matmul(handle, desc, &one, b, layout, a, layout, &zero, d, layout, d, layout,
                        &choice.algo, workspace, kWorkspaceBytes,
                        ctx.stream) == CUBLAS_STATUS_SUCCESS &&
              is_ok;
    };
    product(0, {});  // loads the kernel, which a capture must not
    synchronize(device);
    const Timing timing = time_calls(device, 1, product, {.seconds = 0.2});
    const auto edge = static_cast<double>(n);
    if (is_ok) tflops = 2.0 * edge * edge * edge / timing.us * 1e-6;
    if (!is_ok) why = "cublasLtMatmul failed, so no matrix rate";
    deallocate(device, workspace);
  }
  lt.preference_destroy(preference);
  lt.layout_destroy(layout);
  lt.desc_destroy(desc);
  lt.destroy(handle);
  return tflops;
}

}  // namespace tessera::bench
