// Filling, fetching and looking at the guards.
// SPDX-License-Identifier: MIT
#include "ladder/guarded.h"

#include "tessera/core/device.h"

namespace tessera::ladder {
namespace {

constexpr uint8_t kPoison = 0xff;        // NaN in f32 and in bf16
constexpr int64_t kGuardElements = 512;  // on either side of the output

bool is_poison(const uint8_t* bytes, int64_t num_bytes) {
  for (int64_t i = 0; i < num_bytes; ++i) {
    if (bytes[i] != kPoison) return false;
  }
  return true;
}

}  // namespace

Guarded::Guarded(DType dtype, std::span<const int64_t> shape)
    : shape_(TensorView::contiguous(nullptr, dtype, shape)) {
  const Device gpu = cuda_device();
  memory_ = Tensor(dtype, {shape_.num_elements() + 2 * kGuardElements}, gpu);
  fill_bytes(memory_.view().data, gpu, kPoison, static_cast<size_t>(memory_.size_bytes()));
  synchronize(gpu);
}

void* Guarded::data() const {
  return memory_.view().as<char>() + storage_bytes(shape_.dtype, kGuardElements);
}

Guarded::Result Guarded::fetch() const {
  synchronize(cuda_device());
  Result result{memory_.to(cpu_device()), shape_, {}};
  const int64_t guard_bytes = storage_bytes(shape_.dtype, kGuardElements);
  const int64_t out_bytes = storage_bytes(shape_.dtype, shape_.num_elements());
  auto* bytes = result.memory.view().as<uint8_t>();
  result.out.data = bytes + guard_bytes;
  if (!is_poison(bytes, guard_bytes)) result.damage = "memory before the output was written";
  if (!is_poison(bytes + guard_bytes + out_bytes, guard_bytes)) {
    result.damage = "memory behind the output was written";
  }
  return result;
}

}  // namespace tessera::ladder
