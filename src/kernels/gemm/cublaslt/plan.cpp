// cuBLASLt's descriptors, its heuristic, and the plans found so far.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/cublaslt/plan.h"

#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace tessera::kernels {
namespace {

// Beyond this many plans all are dropped: a server that meets every m must not grow for ever.
constexpr size_t kMaxPlans = 4096;

cudaDataType type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasLtEpilogue_t epilogue_of(const Product& p) {
  if (!p.activation) return p.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  if (*p.activation == Activation::relu) {
    return p.has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  }
  return p.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

template <class T>
bool set(const CublasLt& lt, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what,
         const T& value) {
  return lt.set_desc(desc, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

// Made for every call, because it holds the address of the bias and threads cannot share it.
bool make_desc(const Product& p, const void* bias, cublasLtMatmulDescOpaque_t& desc) {
  const CublasLt& lt = *cublaslt();
  const cublasComputeType_t compute =
      p.allows_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  bool is_ok = lt.init_desc(&desc, sizeof desc, compute, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
               set(lt, &desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  const cublasLtEpilogue_t epilogue = epilogue_of(p);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    is_ok = is_ok && set(lt, &desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  }
  if (p.has_bias) {
    is_ok = is_ok && set(lt, &desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias) &&
            set(lt, &desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.in));
  }
  return is_ok;
}

// A row-major matrix of `rows` by `cols` is, column-major, its transpose.
bool make_layout(const Product& p, const Placement& place, DType dtype, int64_t rows, int64_t cols,
                 cublasLtMatrixLayoutOpaque_t& layout) {
  const CublasLt& lt = *cublaslt();
  if (lt.init_layout(&layout, sizeof layout, type_of(dtype), static_cast<uint64_t>(cols),
                     static_cast<uint64_t>(rows), place.row_stride) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  if (p.batch == 1) return true;
  const auto batch = static_cast<int32_t>(p.batch);
  return lt.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch) ==
             CUBLAS_STATUS_SUCCESS &&
         lt.set_layout(&layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &place.batch_stride,
                       sizeof place.batch_stride) == CUBLAS_STATUS_SUCCESS;
}

bool make_layouts(const Product& p, Plan& plan) {
  return make_layout(p, p.a, p.in, p.m, p.k, plan.a) &&
         make_layout(p, p.b, p.in, p.n, p.k, plan.b) &&
         make_layout(p, p.c, p.out, p.m, p.n, plan.c) &&
         make_layout(p, p.d, p.out, p.m, p.n, plan.d);
}

bool make_preference(const Product& p, cublasLtMatmulPreferenceOpaque_t& preference) {
  const CublasLt& lt = *cublaslt();
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    return lt.set_preference(&preference, what, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
  };
  const auto bytes = [](const Placement& place) { return static_cast<uint32_t>(place.alignment); };
  // Partial sums kept in a 16-bit output would be rounded more than once.
  constexpr uint32_t kReductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  return lt.init_preference(&preference, sizeof preference) == CUBLAS_STATUS_SUCCESS &&
         set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kCublasLtWorkspaceBytes}) &&
         set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, bytes(p.b)) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, bytes(p.a)) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, bytes(p.c)) &&
         set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, bytes(p.d));
}

struct PlanMemory {
  std::shared_mutex mutex;
  std::unordered_map<Product, std::shared_ptr<Plan>, ProductHash> plans;
};
PlanMemory& memory() {
  static auto& only = *new PlanMemory;  // never freed: other threads may still call at exit
  return only;
}

}  // namespace

std::vector<Algorithm> query_algorithms(const Product& product, const Operands& operands,
                                        Plan& plan) {
  const cublasLtHandle_t handle = cublaslt_handle();
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatmulPreferenceOpaque_t preference;
  if (handle == nullptr || !make_desc(product, operands.bias, desc) ||
      !make_layouts(product, plan) || !make_preference(product, preference)) {
    return {};
  }
  std::array<cublasLtMatmulHeuristicResult_t, kMaxCandidates> offered{};
  int num_offered = 0;
  if (cublaslt()->heuristic(handle, &desc, &plan.b, &plan.a, &plan.c, &plan.d, &preference,
                            kMaxCandidates, offered.data(),
                            &num_offered) != CUBLAS_STATUS_SUCCESS) {
    return {};
  }
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < num_offered; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = offered[static_cast<size_t>(i)];
    if (one.state == CUBLAS_STATUS_SUCCESS && one.workspaceSize <= kCublasLtWorkspaceBytes) {
      algorithms.push_back({one.algo, one.workspaceSize});
    }
  }
  return algorithms;
}

cublasStatus_t run_algorithm(const Product& product, const Operands& operands, Plan& plan,
                             const Algorithm& algorithm, void* workspace, Stream stream) {
  cublasLtMatmulDescOpaque_t desc;
  if (!make_desc(product, operands.bias, desc)) return CUBLAS_STATUS_INVALID_VALUE;
  const float alpha = 1.0f;
  const float beta = product.has_residual ? 1.0f : 0.0f;
  return cublaslt()->matmul(cublaslt_handle(), &desc, &alpha, operands.b, &plan.b, operands.a,
                            &plan.a, &beta, operands.c, &plan.c, operands.d, &plan.d,
                            &algorithm.choice, workspace, algorithm.workspace_bytes, stream);
}

std::shared_ptr<Plan> find_plan(const Product& product, const Operands& operands) {
  PlanMemory& known = memory();
  {
    const std::shared_lock lock(known.mutex);
    const auto it = known.plans.find(product);
    if (it != known.plans.end()) return it->second;
  }
  auto plan = std::make_shared<Plan>();
  const std::vector<Algorithm> algorithms = query_algorithms(product, operands, *plan);
  plan->is_supported = !algorithms.empty();
  if (plan->is_supported) plan->algorithm = algorithms.front();
  const std::lock_guard lock(known.mutex);
  if (known.plans.size() >= kMaxPlans) known.plans.clear();
  // Another thread may have added, and even timed, it meanwhile.
  return known.plans.try_emplace(product, std::move(plan)).first->second;
}

void keep_plan(const Product& product, std::shared_ptr<Plan> plan) {
  PlanMemory& known = memory();
  const std::lock_guard lock(known.mutex);
  known.plans[product] = std::move(plan);
}

}  // namespace tessera::kernels
