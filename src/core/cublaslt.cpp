// Loads cuBLASLt, and keeps one handle per device.
// SPDX-License-Identifier: MIT
#include "core/cublaslt.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <optional>
#include <type_traits>

namespace tessera {
namespace {

void* open_library() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                           "/usr/local/cuda/lib64/libcublasLt.so"}) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  return nullptr;
}

std::optional<CublasLt> load() {
  void* library = open_library();
  if (library == nullptr) return std::nullopt;
  CublasLt lt;
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  const bool is_whole =
      find(lt.create, "cublasLtCreate") && find(lt.status_name, "cublasLtGetStatusName") &&
      find(lt.init_desc, "cublasLtMatmulDescInit_internal") &&
      find(lt.set_desc, "cublasLtMatmulDescSetAttribute") &&
      find(lt.init_layout, "cublasLtMatrixLayoutInit_internal") &&
      find(lt.set_layout, "cublasLtMatrixLayoutSetAttribute") &&
      find(lt.init_preference, "cublasLtMatmulPreferenceInit_internal") &&
      find(lt.set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
      find(lt.heuristic, "cublasLtMatmulAlgoGetHeuristic") && find(lt.matmul, "cublasLtMatmul");
  return is_whole ? std::optional(lt) : std::nullopt;
}

}  // namespace

const CublasLt* cublaslt() {
  static const std::optional<CublasLt> lt = load();
  return lt ? &*lt : nullptr;
}

cublasLtHandle_t cublaslt_handle() {
  // Never destroyed: at exit the CUDA runtime may be gone already.
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  static std::mutex mutex;
  int device = 0;
  if (cublaslt() == nullptr || cudaGetDevice(&device) != cudaSuccess) return nullptr;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (handle == nullptr && cublaslt()->create(&handle) != CUBLAS_STATUS_SUCCESS) handle = nullptr;
  return handle;
}

}  // namespace tessera
