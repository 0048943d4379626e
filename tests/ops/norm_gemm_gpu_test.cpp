// norm_gemm gives the bits of rms_norm and gemm, so that a model may use either.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>

#include "bench/instance.h"
#include "bench/problem.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

class NormGemmOnGpu : public testing::GpuTest {};

Tensor result_of(const bench::ProblemMaker& maker, RowKey key, const bench::Shape& shape) {
  const bench::Problem problem = maker.make(key, shape, bench::Fill::normal, 11);
  bench::Instance instance(problem, cuda_device());
  instance.reset();
  instance.run(0, Context{.batch_invariant = true});
  synchronize(cuda_device());
  return instance.download(problem.operands.size() - 1);
}

TEST_F(NormGemmOnGpu, HasTheBitsOfBothCalls) {
  const bench::ProblemMaker& maker = *bench::find_maker("norm_gemm");
  for (const RowKey key : maker.keys) {
    int num_compared = 0;
    for (const bench::Shape& shape : maker.test_shapes) {
      if (!maker.fits(key, shape)) continue;
      const bench::Problem sizes = maker.make(key, shape, bench::Fill::none, 0);
      if (!bench::is_taken(sizes, cuda_device(), Context{.batch_invariant = true})) continue;
      SCOPED_TRACE(std::string(types_of(key)) + " " + bench::to_string(shape));
      const Tensor fused = result_of(maker, key, shape);
      const Tensor separate = result_of(maker, key, bench::with_value(shape, "separate", 1));
      ASSERT_EQ(fused.size_bytes(), separate.size_bytes());
      EXPECT_EQ(std::memcmp(fused.view().data, separate.view().data,
                            static_cast<size_t>(fused.size_bytes())),
                0);
      ++num_compared;
    }
    EXPECT_GE(num_compared, 3) << std::string(types_of(key));
  }
}

}  // namespace
}  // namespace tessera
