// Whether GPU tests can run here, and what to do when they cannot.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "tessera/core/device.h"

namespace tessera::testing {

// Empty where a GPU of at least the given compute capability is present; otherwise the reason.
inline std::string missing_gpu(int compute_capability = 80) {
  if (num_cuda_devices() == 0) return "no CUDA device on this machine";
  const DeviceInfo& info = device_info(cuda_device());
  if (info.compute_capability >= compute_capability) return {};
  return info.name + " has compute capability " + std::to_string(info.compute_capability) +
         "; this test needs " + std::to_string(compute_capability);
}

// TESSERA_REQUIRE_GPU=1 turns a skip for want of a GPU into a failure.
inline bool require_gpu() {
  const char* value = std::getenv("TESSERA_REQUIRE_GPU");
  return value != nullptr && std::string_view(value) == "1";
}

// Base of every GPU fixture: skips with the reason, or fails if a GPU is required.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = missing_gpu(needed_capability());
    if (why.empty()) return;
    if (require_gpu()) FAIL() << why << ", and TESSERA_REQUIRE_GPU=1";
    GTEST_SKIP() << why;
  }
  virtual int needed_capability() const { return 80; }
};

// For kernels and instructions of sm_90a.
class HopperTest : public GpuTest {
 protected:
  int needed_capability() const override { return 90; }
};

}  // namespace tessera::testing
