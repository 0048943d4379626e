// Kernels that go wrong on purpose, launched as all kernels are.
// SPDX-License-Identifier: MIT
#include "kernels/launch.h"
#include "tests/bad_kernels.h"

namespace tessera::testing {
namespace {

struct BadParams {
  volatile int* target;
  unsigned long long nanoseconds;
};

__device__ unsigned long long now() {
  unsigned long long time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void wild_write_kernel(const __grid_constant__ BadParams p) { *p.target = 1; }
__global__ void misaligned_write_kernel(const __grid_constant__ BadParams p) { *p.target = 1; }
__global__ void trap_kernel(const __grid_constant__ BadParams) { __trap(); }
__global__ void spin_kernel(const __grid_constant__ BadParams p) {
  const unsigned long long begin = now();
  while (now() - begin < p.nanoseconds) __nanosleep(1000);
}

void launch_one(void (*kernel)(BadParams), const BadParams& params, Stream stream) {
  kernels::launch(kernel, {.grid = dim3(1), .block = dim3(1)}, params, Context{.stream = stream});
}

}  // namespace

void launch_wild_write(Stream stream) {
  launch_one(&wild_write_kernel, {.target = reinterpret_cast<int*>(64)}, stream);
}

void launch_misaligned_write(Stream stream) {
  char* memory = static_cast<char*>(allocate(cuda_device(), 64));  // lost with the device's use
  launch_one(&misaligned_write_kernel, {.target = reinterpret_cast<int*>(memory + 1)}, stream);
}

void launch_trap(Stream stream) { launch_one(&trap_kernel, {}, stream); }

void launch_spin(double seconds, Stream stream) {
  launch_one(&spin_kernel, {.nanoseconds = static_cast<unsigned long long>(seconds * 1e9)}, stream);
}

}  // namespace tessera::testing
