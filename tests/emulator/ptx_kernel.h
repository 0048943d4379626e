// A kernel for tests, written in PTX: its body begins with the registers declared here and the
// address of its output in %rd0; kLeave stores a result of each thread.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/fault.h"
#include "tests/emulator/launch.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/module.h"

namespace tessera::emulator {

// Stores %r0 of each thread of a one-dimensional block.
constexpr const char* kLeave = R"(
  mov.u32 %r30, %tid.x;
  mul.wide.u32 %rd9, %r30, 4;
  add.s64 %rd9, %rd0, %rd9;
  st.global.u32 [%rd9], %r0;
)";

class PtxKernel {
 public:
  explicit PtxKernel(const std::string& body) {
    text_ = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry test_kernel(
  .param .u64 out
)
{
  .reg .pred %p<10>;
  .reg .b16 %rs<10>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<20>;
  .reg .f32 %f<20>;
  ld.param.u64 %rd0, [out];
)" + body + "\n  ret;\n}\n";
    module_ = parse_module(text_);
    build_kernel(kernel());
  }

  Kernel& kernel() { return module_->kernels.at("test_kernel"); }

  // What the threads of one block left behind; throws Fault.
  std::vector<uint32_t> run(uint32_t num_threads, uint64_t seed = 0) {
    std::vector<uint32_t> out(num_threads);
    constexpr size_t kLeastBytes = 16;
    const DeviceMemory memory(std::max(4 * out.size(), kLeastBytes));
    const auto address = reinterpret_cast<uint64_t>(memory.data());
    Launch launch;
    launch.kernel = &kernel();
    launch.block = {num_threads, 1, 1};
    launch.parameters = reinterpret_cast<const char*>(&address);
    launch.random.seed(seed);
    run_launch(launch);
    std::copy_n(reinterpret_cast<const uint32_t*>(memory.data()), out.size(), out.begin());
    return out;
  }

 private:
  std::string text_;
  std::unique_ptr<Module> module_;
};

// The text of the fault that a kernel ends with, of the kind expected; empty if there is none.
inline std::string fault_of(PtxKernel& kernel, uint32_t num_threads, FaultKind kind) {
  try {
    kernel.run(num_threads);
  } catch (const Fault& fault) {
    return fault.kind() == kind ? fault.what() : std::string("another kind: ") + fault.what();
  }
  return {};
}

}  // namespace tessera::emulator
