// What the device can do at most, measured in the same run as the kernels compared with it.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "tessera/core/device.h"

namespace tessera::bench {

struct Ceilings {
  double read_tbs = 0;     // reading memory far larger than any cache
  double copy_tbs = 0;     // bytes read plus bytes written
  double bf16_tflops = 0;  // a large matrix product by cuBLASLt; 0 if it is not installed
  std::string note;        // why something is missing
};

Ceilings measure_ceilings(Device device);

// The CUDA half (ceilings.cu, matrix_rate.cpp; empty answers from ceilings_none.cpp).
Ceilings measure_cuda_ceilings(Device device);
// "0000:1b:00.0"; empty if there is none.
std::string pci_bus_id(Device device);

// The least microseconds the problem can take: the larger of bytes over the read bandwidth and
// flops over the matrix rate.
double floor_us(const Ceilings& ceilings, double bytes, double flops);

}  // namespace tessera::bench
