// The matrix product's rows by cuBLASLt, which run the fastest of the algorithms it offers. They
// run on every GPU that the portable library runs on, and decline where cuBLASLt is not installed.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/cuda_check.h"
#include "core/launch_log.h"
#include "core/text.h"
#include "kernels/gemm/cublaslt/plan.h"
#include "kernels/relaxed_capture.h"
#include "kernels/stream_scratch.h"
#include "tessera/core/error.h"

namespace tessera::kernels {
namespace {

Operands operands_of(const GemmArgs& args) {
  return {.a = args.a.data,
          .b = args.b.values.data,
          .bias = args.bias ? args.bias->data : nullptr,
          .c = args.residual ? args.residual->data : args.out.data,
          .d = args.out.data};
}

bool is_capturing(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess) {
    return status != cudaStreamCaptureStatusNone;
  }
  cudaGetLastError();  // the default stream while another is captured: it may not be waited for
  return true;
}

// A pair of events on a stream.
class Stopwatch {
 public:
  explicit Stopwatch(Stream stream) : stream_(stream) {
    cuda_check(cudaEventCreate(&begin_), "cudaEventCreate");
    cuda_check(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~Stopwatch() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start() { cuda_check(cudaEventRecord(begin_, stream_), "cudaEventRecord"); }
  float stop_us() {  // waits
    cuda_check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return 1e3f * milliseconds;
  }

 private:
  Stream stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// Microseconds per call, the best of a few tries; infinity if the algorithm does not run. Short
// calls are timed eight at a time, so that the cost of the events does not decide.
template <class Call>
float time_call(const Call& call, Stopwatch& watch) {
  constexpr int kTries = 3;
  constexpr float kShortUs = 100.0f;
  watch.start();
  const bool runs = call();  // loads the kernel
  const float first_us = watch.stop_us();
  if (!runs) return std::numeric_limits<float>::infinity();
  float best_us = std::numeric_limits<float>::infinity();
  int num_calls = first_us < kShortUs ? 8 : 1;
  for (int i = 0; i < kTries; ++i) {
    watch.start();
    for (int j = 0; j < num_calls; ++j) call();
    best_us = std::min(best_us, watch.stop_us() / static_cast<float>(num_calls));
    if (best_us < kShortUs) num_calls = 8;
  }
  return best_us;
}

// Where timed calls write: out itself, or a copy if out is also an input.
class TimingTarget {
 public:
  TimingTarget(const GemmArgs& args, const Product& p, Stream stream)
      : device_(args.a.device), operands_(operands_of(args)) {
    if (!p.has_residual || operands_.c != operands_.d) return;
    const int64_t num_elements =
        (p.batch - 1) * p.d.batch_stride + (p.m - 1) * p.d.row_stride + p.n;
    const auto num_bytes = static_cast<size_t>(storage_bytes(p.out, num_elements));
    copy_ = allocate(device_, num_bytes);
    copy_bytes(copy_, device_, operands_.d, device_, num_bytes, stream);
    operands_.c = copy_;
    operands_.d = copy_;
  }
  ~TimingTarget() { deallocate(device_, copy_); }  // waits for the kernels that write it
  TimingTarget(const TimingTarget&) = delete;
  TimingTarget& operator=(const TimingTarget&) = delete;

  const Operands& operands() const { return operands_; }

 private:
  Device device_;
  Operands operands_;
  void* copy_ = nullptr;
};

// Times all algorithms that the library offers and remembers the fastest.
std::shared_ptr<Plan> time_algorithms(const GemmArgs& args, const Product& product, Stream stream) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto plan = find_plan(product, operands_of(args));
  if (plan->is_timed || !plan->is_supported) return plan;
  const TimingTarget target(args, product, stream);
  auto best = std::make_shared<Plan>();
  const auto algorithms = query_algorithms(product, target.operands(), *best);
  if (algorithms.empty()) return plan;
  best->is_supported = best->is_timed = true;
  best->algorithm = algorithms.front();
  float best_us = std::numeric_limits<float>::infinity();
  const StreamScratch workspace(args.a.device, stream, {.num_bytes = kCublasLtWorkspaceBytes});
  Stopwatch watch(stream);
  for (const Algorithm& algorithm : algorithms) {
    if (algorithms.size() == 1) break;
    const auto call = [&] {
      return run_algorithm(product, target.operands(), *best, algorithm, workspace.data(),
                           stream) == CUBLAS_STATUS_SUCCESS;
    };
    const float us = time_call(call, watch);
    if (us < best_us) {
      best_us = us;
      best->algorithm = algorithm;
    }
  }
  keep_plan(product, best);
  return best;
}

// Whether the library is installed and offers an algorithm for this product. The answer is kept per
// kind of product: 0.1 us from the second time on.
bool accepts(const GemmArgs& args) {
  const std::optional<Product> product = product_of(args);
  if (!product || cublaslt() == nullptr) return false;
  const DeviceGuard guard(args.a.device);
  const RelaxedCapture relaxed;  // a handle may be created
  return find_plan(*product, operands_of(args))->is_supported;
}

// The first call of a kind of product outside a capture times up to 8 algorithms and waits for
// them, which takes milliseconds; later calls only enqueue. Under capture the algorithm that the
// library lists first is used, unless one was timed before.
void launch(const GemmArgs& args, const Context& ctx) {
  const std::optional<Product> product = product_of(args);
  expects(product.has_value(), "gemm: cuBLASLt was given a product that its row does not accept");
  const Operands operands = operands_of(args);
  const RelaxedCapture relaxed;  // memory may be allocated and a kernel loaded
  auto plan = find_plan(*product, operands);
  if (!plan->is_timed && !is_capturing(ctx.stream)) {
    plan = time_algorithms(args, *product, ctx.stream);
  }
  const StreamScratch workspace(args.a.device, ctx.stream,
                                {.num_bytes = plan->algorithm.workspace_bytes});
  const cublasStatus_t status =
      run_algorithm(*product, operands, *plan, plan->algorithm, workspace.data(), ctx.stream);
  if (status == CUBLAS_STATUS_SUCCESS) return log_launch("cublasLtMatmul");
  cuda_check(cudaGetLastError(), "cublasLtMatmul");
  fail(concat("gemm: cublasLtMatmul answers ", cublaslt()->status_name(status), " for a = ",
              to_string(args.a), ", b = ", to_string(args.b.values), "; force another row"));
}

constexpr Row<GemmArgs> row(DType in, DType out) {
  constexpr bool kIsBatchInvariant = false;
  return {
      "gemm",   Library::portable, {in, out}, &launch, label_of("cublaslt_", types_of({in, out})),
      &accepts, kIsBatchInvariant};
}

constexpr Row<GemmArgs> kRows[] = {
    row(DType::bf16, DType::bf16), row(DType::f16, DType::f16), row(DType::f32, DType::f32),
    row(DType::bf16, DType::f32),  row(DType::f16, DType::f32),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows_cublaslt() { return kRows; }

}  // namespace tessera::kernels
