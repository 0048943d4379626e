// Faults on a GPU: each names the kernels launched last and ends the use of the device, so each
// happens in a process of its own, which tells on stderr what it saw.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/instance.h"
#include "bench/problem.h"
#include "core/library.h"
#include "kernels/stream_scratch.h"
#include "ops/registry.h"
#include "tessera/core/device_fault.h"
#include "tessera/core/error.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/activation.h"
#include "tests/bad_kernels.h"
#include "tests/core/message_of.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using bench::Fill;
using bench::Instance;
using bench::Problem;
using testing::message_of;

class FaultDeathTest : public testing::GpuTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    GpuTest::SetUp();
  }
};

void run_relu(const Tensor& x) { activation({.x = x, .out = x, .kind = Activation::relu}); }

// Whether all that needs the device is refused with the text of its fault.
bool is_refused_everywhere(const std::string& text, const Tensor& x) {
  char host[64];
  const auto refuses = [&](const char* what, auto&& action) {
    const std::string message = message_of(action);
    if (message == text) return true;
    std::fprintf(stderr, "%s says '%s'\n", what, message.c_str());
    return false;
  };
  bool all = refuses("synchronize", [] { synchronize(cuda_device()); });
  all &= refuses("allocate", [] { (void)allocate(cuda_device(), 16); });
  all &= refuses("fill_bytes", [&] { fill_bytes(x.view().data, cuda_device(), 0, 64); });
  all &= refuses("copy_bytes",
                 [&] { copy_bytes(host, cpu_device(), x.view().data, cuda_device(), 64); });
  all &= refuses("free_device_bytes", [] { (void)free_device_bytes(cuda_device()); });
  all &= refuses("an operation", [&] { run_relu(x); });
  return all;
}

template <class Launch>
[[noreturn]] void report_fault(const Launch& launch) {
  bool is_well = false;
  {
    const Tensor x(DType::f32, {16}, cuda_device());
    fill_bytes(x.view().data, cuda_device(), 0, 64);
    run_relu(x);
    launch();
    try {
      synchronize(cuda_device());
    } catch (const DeviceFault& fault) {
      std::fprintf(stderr, "%s\n", fault.what());
      is_well = is_refused_everywhere(fault.what(), x);
    }
  }  // memory of a device that is gone is let go without a word
  std::_Exit(is_well ? 0 : 1);
}

const ::testing::ExitedWithCode kReported(0);

TEST_F(FaultDeathTest, AWildWriteNamesItsKernelAndEndsTheUseOfTheDevice) {
  EXPECT_EXIT(report_fault([] { testing::launch_wild_write(); }), kReported,
              "cudaStreamSynchronize: cuda:0 reports an illegal memory access was encountered "
              ".cudaErrorIllegalAddress., most likely raised by one of the last kernels that "
              "Tessera launched: "
              "wild_write_kernel, [a-z0-9_]*activation[a-z0-9_]*; this process cannot use the "
              "device any more");
}

TEST_F(FaultDeathTest, AMisalignedWriteNamesItsKernel) {
  EXPECT_EXIT(report_fault([] { testing::launch_misaligned_write(); }), kReported,
              "cudaErrorMisalignedAddress.*launched: misaligned_write_kernel");
}

TEST_F(FaultDeathTest, ATrapNamesItsKernel) {
  EXPECT_EXIT(report_fault([] { testing::launch_trap(); }), kReported,
              "cuda:0 reports .*launched: trap_kernel");
}

constexpr RowKey kBf16{DType::bf16, DType::bf16};

Problem make_decode(Fill fill) {
  const bench::Shape shape{{"batch", 2},    {"kv_len", 300}, {"heads", 8},
                           {"kv_heads", 2}, {"d", 128},      {"page", 64}};
  return bench::find_maker("attention_decode")->make(kBf16, shape, fill, 7);
}

// What the host cannot see: a table on the device that names pages which do not exist.
[[noreturn]] void decode_over_bad_pages(const std::string& row) {
  const Problem problem = make_decode(Fill::normal);
  for (const bench::Operand& operand : problem.operands) {
    if (operand.name != "page_table") continue;
    const TensorView table = operand.host.view();
    std::fill_n(table.as<int32_t>(), table.num_elements(), 1 << 28);
  }
  Instance instance(problem, cuda_device());
  instance.reset();
  const std::string message = message_of([&] {
    instance.run(0, Context{.row = row});
    synchronize(cuda_device());
  });
  std::fprintf(stderr, "message: '%s'\n", message.c_str());
  if (message.empty()) std::fprintf(stderr, "damage: '%s'\n", instance.damage().c_str());
  std::_Exit(0);
}

// The portable kernel reads there and faults. The Hopper kernel's copies go through descriptors
// that end with the pool: it reads zeros, and touches nothing that is not its own.
TEST_F(FaultDeathTest, PagesThatDoNotExistFaultByNameOrReadZeros) {
  EXPECT_EXIT(decode_over_bad_pages("attention_decode_bf16"), kReported,
              "reports .*launched: attention_decode_kernel");
  for (const ops::RowInfo& row : ops::all_rows()) {
    if (row.op != "attention_decode" || row.library != Library::sm90 || row.key != kBf16) continue;
    if (!runs_on(row.library, device_info(cuda_device()).compute_capability)) continue;
    if (!bench::is_taken(make_decode(Fill::none), cuda_device(), Context{.row = row.name})) {
      continue;
    }
    EXPECT_EXIT(decode_over_bad_pages(row.name), kReported,
                "(reports .*launched: attention_decode|message: ''\ndamage: '')")
        << row.name;
  }
}

class OutOfMemoryOnGpu : public testing::GpuTest {};

TEST_F(OutOfMemoryOnGpu, IsSaidWithWhatIsFreeAndTheProcessGoesOn) {
  const auto expect_usable = [] {
    const Tensor x(DType::f32, {16}, cuda_device());
    fill_bytes(x.view().data, cuda_device(), 0, 64);
    run_relu(x);
    EXPECT_EQ(x.to(cpu_device()).view().as<float>()[3], 0.0f);
  };
  const std::string message =
      message_of([] { const Tensor huge(DType::u8, {int64_t{1} << 45}, cuda_device()); });
  EXPECT_NE(message.find("no room for 35184372088832 bytes on cuda:0; "), std::string::npos)
      << message;
  EXPECT_NE(message.find(" are free"), std::string::npos) << message;
  expect_usable();
  const std::string of_scratch = message_of([] {
    const kernels::StreamScratch scratch(cuda_device(), nullptr, {.num_bytes = size_t{1} << 45});
  });
  EXPECT_NE(of_scratch.find("no room for"), std::string::npos) << of_scratch;
  const kernels::StreamScratch scratch(cuda_device(), nullptr, {.num_bytes = 100});
  EXPECT_NE(scratch.data(), nullptr);
  fill_bytes(scratch.data(), cuda_device(), 1, 100);
  expect_usable();
}

}  // namespace
}  // namespace tessera
