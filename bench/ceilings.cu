// Read and copy bandwidth of a GPU by the simplest kernels that reach them.
// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include <algorithm>

#include "bench/ceilings.h"
#include "bench/matrix_rate.h"
#include "bench/timer.h"
#include "kernels/launch.h"
#include "tessera/core/tensor.h"
#include "tile/unroll.cuh"

namespace tessera::bench {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;  // independent 16-byte loads in flight per thread

struct StreamParams {
  const uint4* from;  // [count]
  uint4* to;          // [count]
  int64_t count;      // 16-byte vectors; a multiple of a block's share
};

// Reads everything and keeps only the combined bits.
__global__ void __launch_bounds__(kThreads) read_kernel(const StreamParams p) {
  unsigned bits = 0;
  const int64_t share = int64_t{kThreads} * kLoads;
  for (int64_t base = blockIdx.x * share; base < p.count; base += gridDim.x * share) {
    uint4 loaded[kLoads];
    TESSERA_UNROLL
    for (int i = 0; i < kLoads; ++i) loaded[i] = __ldcs(p.from + base + i * kThreads + threadIdx.x);
    TESSERA_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      bits ^= loaded[i].x ^ loaded[i].y ^ loaded[i].z ^ loaded[i].w;
    }
  }
  // Almost never true, but the compiler cannot know, so the loads stay.
  if (bits == 0x12345678u) p.to->x = bits;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const StreamParams p) {
  const int64_t share = int64_t{kThreads} * kLoads;
  for (int64_t base = blockIdx.x * share; base < p.count; base += gridDim.x * share) {
    uint4 loaded[kLoads];
    TESSERA_UNROLL
    for (int i = 0; i < kLoads; ++i) loaded[i] = __ldcs(p.from + base + i * kThreads + threadIdx.x);
    TESSERA_UNROLL
    for (int i = 0; i < kLoads; ++i) __stcs(p.to + base + i * kThreads + threadIdx.x, loaded[i]);
  }
}

// Random bf16 values of magnitude 1 to 2 and either sign: with zeros the GPU would use less power
// and run faster than with real data.
__global__ void __launch_bounds__(kThreads) scatter_kernel(const StreamParams p) {
  auto* words = reinterpret_cast<unsigned*>(p.to);
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < 4 * p.count; i += step) {
    auto z = static_cast<unsigned>(i) * 0x9e3779b9u;
    z = (z ^ (z >> 16)) * 0x85ebca6bu;
    z = (z ^ (z >> 13)) * 0xc2b2ae35u;
    z ^= z >> 16;
    words[i] = (z & 0x807f807fu) | 0x3f803f80u;
  }
}

}  // namespace

Ceilings measure_cuda_ceilings(Device device) {
  const DeviceGuard guard(device);
  const DeviceInfo& info = device_info(device);
  // Far larger than the L2 cache, and never more than an eighth of the memory for both buffers.
  const int64_t num_bytes = std::min<int64_t>(int64_t{4} << 30, info.memory_bytes / 16) >> 20 << 20;
  const int64_t count = num_bytes / 16;
  const Tensor source(DType::u8, {num_bytes}, device);
  const Tensor target(DType::u8, {num_bytes}, device);
  const auto num_sms = static_cast<unsigned>(info.num_sms);
  kernels::launch(&scatter_kernel, {.grid = {num_sms * 4}, .block = {kThreads}},
                  {nullptr, source.view().as<uint4>(), count}, {});
  synchronize(device);
  const StreamParams params{source.view().as<uint4>(), target.view().as<uint4>(), count};
  const auto time = [&](const Call& call) {
    return time_calls(device, 1, call, {.seconds = 0.2}).us;
  };
  // More blocks hide more latency, fewer finish together: the best of a few is the ceiling.
  double read_us = 0, copy_us = 0;
  for (const unsigned per_sm : {4u, 16u, 64u}) {
    const kernels::LaunchShape shape{.grid = {num_sms * per_sm}, .block = {kThreads}};
    const double read = time(
        [&](int64_t, const Context& ctx) { kernels::launch(&read_kernel, shape, params, ctx); });
    const double copy = time(
        [&](int64_t, const Context& ctx) { kernels::launch(&copy_kernel, shape, params, ctx); });
    read_us = read_us == 0 ? read : std::min(read_us, read);
    copy_us = copy_us == 0 ? copy : std::min(copy_us, copy);
  }
  Ceilings ceilings;
  ceilings.read_tbs = static_cast<double>(num_bytes) / read_us * 1e-6;
  ceilings.copy_tbs = 2.0 * static_cast<double>(num_bytes) / copy_us * 1e-6;
  const int64_t n = 8192;
  if (2 * n * n * 2 <= num_bytes) {
    const char* data = source.view().as<char>();
    ceilings.bf16_tflops =
        measure_matrix_tflops(device, n, data, data + n * n * 2, target.view().data, ceilings.note);
  } else {
    ceilings.note = "too little memory for the matrix product";
  }
  return ceilings;
}

std::string pci_bus_id(Device device) {
  char text[32] = {};
  if (cudaDeviceGetPCIBusId(text, sizeof text, device.index) != cudaSuccess) return {};
  return text;
}

}  // namespace tessera::bench
