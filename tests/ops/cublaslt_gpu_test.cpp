// Tests of the cuBLASLt rows beyond every_row_gpu_test.cpp: timing, graph capture, streams, NaN.
// SPDX-License-Identifier: MIT
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/cublaslt.h"
#include "core/cuda_check.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/gemm.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

constexpr Context kForced{.row = "gemm_cublaslt_bf16"};

// Small integers: any order of adding them up gives the same bits.
Tensor integers(int64_t rows, int64_t cols, int64_t salt, DType dtype) {
  Tensor tensor(dtype, {rows, cols});
  for (int64_t i = 0; i < rows * cols; ++i) {
    const auto value = static_cast<float>((i * 7 + salt) % 5 - 2);
    if (dtype == DType::f32) {
      tensor.view().as<float>()[i] = value;
    } else {
      tensor.view().as<Bf16>()[i] = from_float<Bf16>(value);
    }
  }
  return tensor;
}

// The same product on the CPU and, through `run`, on the GPU; equal bit for bit.
struct Case {
  Tensor a, b, residual;  // on the CPU
  bool is_in_place = false;

  Case(int64_t m, int64_t n, int64_t k, DType dtype = DType::bf16)
      : a(integers(m, k, 1, dtype)),
        b(integers(n, k, 3, dtype)),
        residual(integers(m, n, 2, dtype)) {}

  GemmArgs args(const Tensor& a_at, const Tensor& b_at, const Tensor& out_at) const {
    GemmArgs result{.a = a_at, .b = b_at, .out = out_at};
    if (is_in_place) result.residual = out_at.view();
    return result;
  }

  template <class Run>
  void expect_same_bits(const Run& run) const {
    const Tensor want = residual.to(cpu_device());
    gemm(args(a, b, want));
    const Tensor a_gpu = a.to(cuda_device()), b_gpu = b.to(cuda_device());
    const Tensor out_gpu = residual.to(cuda_device());
    run(args(a_gpu, b_gpu, out_gpu));
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const Tensor got = out_gpu.to(cpu_device());
    EXPECT_EQ(
        std::memcmp(got.view().data, want.view().data, static_cast<size_t>(want.size_bytes())), 0);
  }
};

class CublasLtOnGpu : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (cublaslt() == nullptr) GTEST_SKIP() << "libcublasLt was not found";
  }
};

TEST_F(CublasLtOnGpu, AddsAResidualInPlaceOnceThoughItTimesSeveralAlgorithms) {
  constexpr Context kForcedF32{.row = "gemm_cublaslt_f32"};
  Case product(56, 136, 72, DType::f32);
  product.is_in_place = true;
  product.expect_same_bits([&](const GemmArgs& args) { gemm(args, kForcedF32); });
  product.expect_same_bits([&](const GemmArgs& args) { gemm(args, kForcedF32); });
}

TEST_F(CublasLtOnGpu, IsCapturedWhenItsFirstCallIsUnderCapture) {
  const Case product(48, 72, 104);  // a shape that no other test here has timed
  product.expect_same_bits([](const GemmArgs& args) {
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
    Context ctx = kForced;
    ctx.stream = stream;
    EXPECT_NO_THROW(gemm(args, ctx));
    cuda_check(cudaStreamEndCapture(stream, &graph), "end capture");
    cuda_check(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cuda_check(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    cuda_check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  });
}

// More streams than workspaces are kept. The long k invites algorithms that split it, which use
// the workspace.
TEST_F(CublasLtOnGpu, RunsOnManyStreamsAtOnce) {
  constexpr int kNumStreams = 20;
  const Case product(16, 128, 16384);
  product.expect_same_bits([](const GemmArgs& args) {
    std::vector<cudaStream_t> streams(kNumStreams);
    std::vector<Tensor> outs;
    for (cudaStream_t& stream : streams) {
      cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
      outs.emplace_back(DType::bf16, std::initializer_list<int64_t>{16, 128}, cuda_device());
    }
    for (int round = 0; round < 10; ++round) {
      for (size_t i = 0; i < streams.size(); ++i) {
        GemmArgs one = args;
        one.out = outs[i];
        Context ctx = kForced;
        ctx.stream = streams[i];
        gemm(one, ctx);
      }
    }
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    gemm(args, kForced);
    const Tensor want = [&] {
      Tensor copy(DType::bf16, {16, 128}, cuda_device());
      copy_bytes(copy.view().data, cuda_device(), args.out.data, cuda_device(),
                 static_cast<size_t>(copy.size_bytes()));
      return copy.to(cpu_device());
    }();
    for (const Tensor& out : outs) {
      const Tensor got = out.to(cpu_device());
      EXPECT_EQ(
          std::memcmp(got.view().data, want.view().data, static_cast<size_t>(want.size_bytes())),
          0);
    }
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  });
}

TEST_F(CublasLtOnGpu, LetsNanThroughReluAndGelu) {
  for (const Activation kind : {Activation::relu, Activation::gelu_tanh}) {
    Tensor a = integers(8, 64, 1, DType::bf16);
    a.view().as<Bf16>()[3 * 64 + 5] = from_float<Bf16>(std::numeric_limits<float>::quiet_NaN());
    const Tensor a_gpu = a.to(cuda_device());
    const Tensor b_gpu = integers(32, 64, 3, DType::bf16).to(cuda_device());
    const Tensor out_gpu(DType::bf16, {8, 32}, cuda_device());
    const GemmArgs args{.a = a_gpu, .b = b_gpu, .out = out_gpu, .activation = kind};
    if (!supports(args, kForced)) continue;
    gemm(args, kForced);
    const Tensor out = out_gpu.to(cpu_device());
    for (int64_t j = 0; j < 32; ++j) {
      EXPECT_TRUE(std::isnan(to_float(out.view().as<Bf16>()[3 * 32 + j])))
          << "activation " << static_cast<int>(kind) << ", column " << j;
      EXPECT_FALSE(std::isnan(to_float(out.view().as<Bf16>()[4 * 32 + j])));
    }
  }
}

TEST_F(CublasLtOnGpu, IsRefusedUnderBatchInvariance) {
  const Tensor a = integers(8, 64, 1, DType::bf16).to(cuda_device());
  const Tensor b = integers(32, 64, 3, DType::bf16).to(cuda_device());
  const Tensor out(DType::bf16, {8, 32}, cuda_device());
  const GemmArgs args{.a = a, .b = b, .out = out};
  EXPECT_TRUE(supports(args, kForced));
  Context invariant = kForced;
  invariant.batch_invariant = true;
  EXPECT_FALSE(supports(args, invariant));
  EXPECT_THROW(gemm(args, invariant), Error);
}

}  // namespace
}  // namespace tessera
