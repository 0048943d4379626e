// The exact comparison of a step with the CPU.
// SPDX-License-Identifier: MIT
#include "ladder/gemm/check.h"

#include <cstring>
#include <random>
#include <vector>

#include "core/text.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/gemm.h"

namespace tessera::ladder {
namespace {

constexpr int kLargest = 4;
constexpr uint8_t kPoison = 0xff;        // NaN in f32 and in bf16
constexpr int64_t kGuardElements = 512;  // on either side of the output

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

bool is_poison(const uint8_t* bytes, int64_t num_bytes) {
  for (int64_t i = 0; i < num_bytes; ++i) {
    if (bytes[i] != kPoison) return false;
  }
  return true;
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
  const Tensor guarded(step.dtype, {int64_t{m} * n + 2 * kGuardElements}, gpu);
  fill_bytes(guarded.view().data, gpu, kPoison, static_cast<size_t>(guarded.size_bytes()));
  synchronize(gpu);
  const int64_t guard_bytes = storage_bytes(step.dtype, kGuardElements);
  run(step,
      {a_there.view().data, b_there.view().data, guarded.view().as<char>() + guard_bytes, m, n, k},
      Context{});
  synchronize(gpu);

  const Tensor back = guarded.to(cpu_device());
  const auto* bytes = back.view().as<uint8_t>();
  const int64_t out_bytes = want.size_bytes();
  if (!is_poison(bytes, guard_bytes)) return "memory before the output was written";
  if (!is_poison(bytes + guard_bytes + out_bytes, guard_bytes)) {
    return "memory behind the output was written";
  }
  const TensorView got =
      TensorView::contiguous(back.view().as<char>() + guard_bytes, step.dtype, {m, n});
  return first_difference(got, want);
}

}  // namespace tessera::ladder
