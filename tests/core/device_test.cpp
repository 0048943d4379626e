// Devices without needing a GPU: names, CPU memory, and how a missing GPU is reported.
// SPDX-License-Identifier: MIT
#include "tessera/core/device.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tessera/core/memory_use.h"
#include "tessera/core/own_stream.h"
#include "tessera/core/tensor.h"
#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

// The first GPU that this machine does not have; 0 where it has none.
Device absent_gpu() { return cuda_device(num_cuda_devices()); }

bool is_cuda_build() { return !cuda_runtime_version().empty(); }

// The message begins with "cuda:N was asked for"; the reason after it depends on the build.
void expect_refusal(const std::string& message, const std::string& verb) {
  EXPECT_TRUE(message.starts_with(verb + ": " + to_string(absent_gpu()) + " was asked for"))
      << message;
  const std::string why = is_cuda_build() ? "this machine has " : "built without CUDA";
  EXPECT_NE(message.find(why), std::string::npos) << message;
}

TEST(Device, NamesSayKindAndIndex) {
  EXPECT_EQ(to_string(cpu_device()), "cpu");
  EXPECT_EQ(to_string(cuda_device()), "cuda:0");
  EXPECT_EQ(to_string(cuda_device(3)), "cuda:3");
  EXPECT_NE(cuda_device(0), cuda_device(1));
  EXPECT_NE(cuda_device(0), cpu_device());
  EXPECT_EQ(Device{}, cpu_device());
}

TEST(Device, CountingGpusNeverThrows) {
  EXPECT_GE(num_cuda_devices(), 0);
  EXPECT_EQ(num_cuda_devices(), num_cuda_devices());
  EXPECT_TRUE(is_cuda_build() || num_cuda_devices() == 0);
}

TEST(Device, VersionsReadAsMajorDotMinor) {
  for (const std::string& version : {cuda_runtime_version(), cuda_driver_version()}) {
    if (version.empty()) continue;
    const size_t dot = version.find('.');
    ASSERT_NE(dot, std::string::npos) << version;
    EXPECT_GE(std::stoi(version.substr(0, dot)), 11) << version;
    EXPECT_LT(std::stoi(version.substr(dot + 1)), 10) << version;
  }
}

TEST(Device, AnAbsentGpuIsRefusedByName) {
  expect_refusal(message_of([] { (void)device_info(absent_gpu()); }), "device_info");
  expect_refusal(message_of([] { DeviceGuard guard(absent_gpu()); }), "DeviceGuard");
  const std::string allocation = message_of([] { (void)allocate(absent_gpu(), 16); });
  EXPECT_NE(allocation.find(to_string(absent_gpu()) + " was asked for"), std::string::npos);
  EXPECT_FALSE(message_of([] { Tensor tensor(DType::f32, {4}, absent_gpu()); }).empty());
  EXPECT_FALSE(message_of([] { synchronize(absent_gpu()); }).empty());
  char bytes[4] = {};
  EXPECT_FALSE(message_of([&] { fill_bytes(bytes, absent_gpu(), 0, 4); }).empty());
  EXPECT_FALSE(message_of([&] { copy_bytes(bytes, {}, bytes, absent_gpu(), 4); }).empty());
}

TEST(Device, InfoIsAboutGpus) {
  EXPECT_TRUE(message_of([] {
                (void)device_info(cpu_device());
              }).starts_with("device_info: describes GPUs, and was asked about cpu"));
}

TEST(Device, TheCpuNeedsNoGuardAndNoWaiting) {
  DeviceGuard guard(cpu_device());
  synchronize(cpu_device());
}

TEST(CpuMemory, IsAlignedToACacheLine) {
  // Many at once, so that none is aligned by luck or by reuse.
  std::vector<void*> pieces;
  for (size_t size = 1; size < 300; size += 7) {
    pieces.push_back(allocate(cpu_device(), size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back()) % 64, 0u) << size;
    std::memset(pieces.back(), 1, size);
  }
  for (void* const piece : pieces) deallocate(cpu_device(), piece);
}

TEST(CpuMemory, NothingIsAValidAmount) {
  void* const data = allocate(cpu_device(), 0);
  fill_bytes(data, cpu_device(), 1, 0);
  copy_bytes(data, cpu_device(), data, cpu_device(), 0);
  deallocate(cpu_device(), data);
  deallocate(cpu_device(), nullptr);
}

TEST(CpuMemory, TooMuchIsRefusedWithTheNumber) {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  EXPECT_TRUE(message_of([] {
                (void)allocate(cpu_device(), kAll);
              }).starts_with("allocate: no room for 18446744073709551615 bytes on cpu"));
}

TEST(CpuMemory, IsFilledAndCopied) {
  unsigned char from[5] = {};
  unsigned char to[5] = {};
  fill_bytes(from, cpu_device(), 0xab, 4);
  copy_bytes(to, cpu_device(), from, cpu_device(), 5);
  const unsigned char want[5] = {0xab, 0xab, 0xab, 0xab, 0};
  EXPECT_EQ(std::memcmp(to, want, 5), 0);
}

TEST(Device, CountsWhatIsAllocatedAndTheMostAtOnce) {
  constexpr int64_t kBytes = 8 << 20;
  const AllocatedBytes before = allocated_bytes(cpu_device());
  reset_peak_bytes(cpu_device());
  EXPECT_EQ(allocated_bytes(cpu_device()).peak, before.now);
  {
    const Tensor first(DType::u8, {kBytes});
    EXPECT_GE(allocated_bytes(cpu_device()).now, before.now + kBytes);
    const Tensor second(DType::u8, {kBytes});
  }
  EXPECT_EQ(allocated_bytes(cpu_device()).now, before.now);
  EXPECT_GE(allocated_bytes(cpu_device()).peak, before.now + 2 * kBytes);
  EXPECT_LT(allocated_bytes(cpu_device()).peak, before.now + 3 * kBytes);
  reset_peak_bytes(cpu_device());
  EXPECT_EQ(allocated_bytes(cpu_device()).peak, before.now);
  EXPECT_EQ(allocated_bytes(cuda_device(99)).now, 0);
}

TEST(Device, TheMostHostMemoryIsWhatWasWritten) {
  constexpr size_t kBytes = 64 << 20;
  const Tensor tensor(DType::u8, {static_cast<int64_t>(kBytes)});
  fill_bytes(tensor.view().data, cpu_device(), 1, kBytes);
  EXPECT_GE(peak_host_bytes(), static_cast<int64_t>(kBytes));
}

TEST(Device, AStreamOfTheCpuIsTheNullStream) {
  OwnStream stream(cpu_device());
  EXPECT_EQ(static_cast<Stream>(stream), nullptr);
  expect_refusal(message_of([] { const OwnStream stream(absent_gpu()); }),
                 is_cuda_build() ? "DeviceGuard" : "OwnStream");
}

}  // namespace
}  // namespace tessera
