// The exact comparison of a step with the CPU.
// SPDX-License-Identifier: MIT
#include "ladder/gemm/check.h"

#include <random>

#include "core/text.h"
#include "ladder/guarded.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/gemm.h"

namespace tessera::ladder {
namespace {

constexpr int kLargest = 4;

Tensor random_integers(DType dtype, int rows, int cols, unsigned seed) {
  Tensor tensor(dtype, {rows, cols});
  std::mt19937 generator(seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) {
      const int value = static_cast<int>(generator() % (2 * kLargest + 1)) - kLargest;
      const int64_t index[] = {row, col};
      store_from_float(tensor, index, static_cast<float>(value));
    }
  }
  return tensor;
}

std::string first_difference(const TensorView& got, const TensorView& want) {
  int64_t num_wrong = 0;
  std::string first;
  for (int64_t row = 0; row < want.size(0); ++row) {
    for (int64_t col = 0; col < want.size(1); ++col) {
      const int64_t index[] = {row, col};
      const float value = load_as_float(got, index);
      const float right = load_as_float(want, index);
      if (value == right) continue;
      if (num_wrong++ == 0) {
        first = concat("element (", row, ", ", col, ") is ", value, ", want ", right);
      }
    }
  }
  return num_wrong == 0 ? "" : concat(first, "; ", num_wrong, " differ");
}

}  // namespace

std::string check_exact(const Step& step, int m, int n, int k) {
  const Tensor a = random_integers(step.dtype, m, k, 1);
  const Tensor b = random_integers(step.dtype, n, k, 2);
  const Tensor want(step.dtype, {m, n});
  GemmArgs reference;
  reference.a = a;
  reference.b = b;
  reference.out = want;
  gemm(reference);

  const Device gpu = cuda_device();
  const Tensor a_there = a.to(gpu);
  const Tensor b_there = b.to(gpu);
  const int64_t shape[] = {m, n};
  const Guarded out(step.dtype, shape);
  run(step, {a_there.view().data, b_there.view().data, out.data(), m, n, k}, Context{});
  const Guarded::Result got = out.fetch();
  return got.damage.empty() ? first_difference(got.out, want) : got.damage;
}

}  // namespace tessera::ladder
