// GPU memory and device queries, checked by what comes back.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/convert.h"
#include "tessera/core/device.h"
#include "tessera/core/host_buffer.h"
#include "tessera/core/memory_use.h"
#include "tessera/core/own_stream.h"
#include "tessera/core/tensor.h"
#include "tests/core/message_of.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using testing::message_of;

class DeviceOnGpu : public testing::GpuTest {};

TEST_F(DeviceOnGpu, InfoIsPlausible) {
  const DeviceInfo& info = device_info(cuda_device());
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(info.compute_capability, 80);
  EXPECT_LT(info.compute_capability, 200);
  EXPECT_GE(info.num_sms, 8);
  EXPECT_GT(info.memory_bytes, int64_t{1} << 30);
  EXPECT_GT(info.l2_bytes, 1 << 20);
  EXPECT_GE(info.shared_bytes_per_block, 64 * 1024);
  EXPECT_GT(info.sm_clock_khz, 100'000);
  if (info.compute_capability == 90) {
    EXPECT_EQ(info.shared_bytes_per_block, 227 * 1024);
  }
}

TEST_F(DeviceOnGpu, InfoIsRememberedAndSafeToAskFromManyThreads) {
  std::vector<const DeviceInfo*> answers(8);
  std::vector<std::thread> threads;
  for (const DeviceInfo*& answer : answers) {
    threads.emplace_back([&answer] { answer = &device_info(cuda_device()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const DeviceInfo* answer : answers) EXPECT_EQ(answer, answers[0]);
}

TEST_F(DeviceOnGpu, FreeMemoryFallsByWhatIsTaken) {
  const int64_t before = free_device_bytes(cuda_device());
  EXPECT_LE(before, device_info(cuda_device()).memory_bytes);
  constexpr int64_t kTaken = int64_t{256} << 20;
  const Tensor taken(DType::u8, {kTaken}, cuda_device());
  EXPECT_LE(free_device_bytes(cuda_device()), before - kTaken / 2);
}

TEST_F(DeviceOnGpu, AllocationsAreCountedAndTheDriverSeesThem) {
  constexpr int64_t kTaken = int64_t{256} << 20;
  const AllocatedBytes before = allocated_bytes(cuda_device());
  reset_peak_bytes(cuda_device());
  const int64_t used = used_device_bytes(cuda_device());
  {
    const Tensor taken(DType::u8, {kTaken}, cuda_device());
    EXPECT_EQ(allocated_bytes(cuda_device()).now, before.now + kTaken);
    EXPECT_GE(used_device_bytes(cuda_device()), used + kTaken / 2);
  }
  EXPECT_EQ(allocated_bytes(cuda_device()).now, before.now);
  EXPECT_EQ(allocated_bytes(cuda_device()).peak, before.now + kTaken);
}

TEST_F(DeviceOnGpu, AStreamOfItsOwnIsFinishedWhenItEnds) {
  constexpr size_t kBytes = 64 << 20;
  const HostBuffer host(cuda_device(), kBytes);
  const Tensor there(DType::u8, {static_cast<int64_t>(kBytes)}, cuda_device());
  fill_bytes(there.view().data, cuda_device(), 7, kBytes);
  synchronize(cuda_device());
  {
    const OwnStream stream(cuda_device());
    EXPECT_NE(static_cast<Stream>(stream), nullptr);
    copy_bytes(host.as<uint8_t>(), cpu_device(), there.view().data, cuda_device(), kBytes, stream);
  }
  EXPECT_EQ(host.as<uint8_t>()[kBytes - 1], 7);
}

TEST_F(DeviceOnGpu, PinnedMemoryMakesTheTripThereAndBack) {
  constexpr size_t kBytes = 1'000'003;
  HostBuffer sent(cuda_device(), kBytes), received(cuda_device(), kBytes);
  for (size_t i = 0; i < kBytes; ++i) sent.as<uint8_t>()[i] = static_cast<uint8_t>(i * 31);
  const Tensor there(DType::u8, {static_cast<int64_t>(kBytes)}, cuda_device());
  copy_bytes(there.view().data, cuda_device(), sent.as<uint8_t>(), cpu_device(), kBytes);
  copy_bytes(received.as<uint8_t>(), cpu_device(), there.view().data, cuda_device(), kBytes);
  synchronize(cuda_device());
  for (size_t i = 0; i < kBytes; ++i) {
    ASSERT_EQ(received.as<uint8_t>()[i], static_cast<uint8_t>(i * 31)) << i;
  }
}

TEST_F(DeviceOnGpu, BothVersionsAreKnown) {
  EXPECT_NE(cuda_runtime_version(), "");
  EXPECT_NE(cuda_driver_version(), "");
}

TEST_F(DeviceOnGpu, BytesSurviveTheTripThereAndBack) {
  for (const size_t size : {1u, 255u, 4096u, 1'000'003u}) {
    std::vector<uint8_t> sent(size);
    for (size_t i = 0; i < size; ++i) sent[i] = static_cast<uint8_t>(i * 31 + i / 256);
    std::vector<uint8_t> received(size, 0);
    void* const first = allocate(cuda_device(), size);
    void* const second = allocate(cuda_device(), size);
    copy_bytes(first, cuda_device(), sent.data(), cpu_device(), size);
    copy_bytes(second, cuda_device(), first, cuda_device(), size);
    copy_bytes(received.data(), cpu_device(), second, cuda_device(), size);
    synchronize(cuda_device());
    EXPECT_EQ(received, sent) << size;
    deallocate(cuda_device(), first);
    deallocate(cuda_device(), second);
  }
}

TEST_F(DeviceOnGpu, FillWritesExactlyTheBytesAskedFor) {
  const Tensor tensor(DType::u8, {1000}, cuda_device());
  fill_bytes(tensor.view().data, cuda_device(), 0x11, 1000);
  fill_bytes(tensor.view().as<uint8_t>() + 100, cuda_device(), 0xee, 300);
  const Tensor back = tensor.to(cpu_device());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(back.view().as<uint8_t>()[i], i >= 100 && i < 400 ? 0xee : 0x11) << i;
  }
}

TEST_F(DeviceOnGpu, TensorsCopyBetweenDevices) {
  const Tensor source(DType::i32, {7, 11});
  std::iota(source.view().as<int32_t>(), source.view().as<int32_t>() + 77, 5);
  const Tensor on_gpu = source.to(cuda_device());
  EXPECT_EQ(to_string(on_gpu.view()), "i32[7, 11] on cuda:0");
  const Tensor twin = on_gpu.to(cuda_device());
  EXPECT_NE(twin.view().data, on_gpu.view().data);
  const Tensor back = twin.to(cpu_device());
  EXPECT_EQ(to_string(back.view()), "i32[7, 11] on cpu");
  for (int i = 0; i < 77; ++i) ASSERT_EQ(back.view().as<int32_t>()[i], i + 5);
}

TEST_F(DeviceOnGpu, PackedAndEmptyTensorsCopyToo) {
  const Tensor values(DType::i32, {5});
  for (int i = 0; i < 5; ++i) values.view().as<int32_t>()[i] = i - 2;
  const Tensor packed(DType::i4, {5});
  convert(values, packed);
  const Tensor back = packed.to(cuda_device()).to(cpu_device());
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(load_as_float(back, std::vector<int64_t>{i}), static_cast<float>(i - 2));
  }
  EXPECT_EQ(Tensor(DType::f32, {0, 3}).to(cuda_device()).to(cpu_device()).view().size(1), 3);
}

TEST_F(DeviceOnGpu, AMovedTensorFreesItsMemoryOnce) {
  Tensor first(DType::f32, {256}, cuda_device());
  void* const data = first.view().data;
  Tensor second = std::move(first);
  EXPECT_EQ(second.view().data, data);
  second = Tensor(DType::f32, {16}, cuda_device());
  synchronize(cuda_device());
}

TEST_F(DeviceOnGpu, TooMuchMemoryIsRefusedAndTheDeviceStaysUsable) {
  const std::string message = message_of([] { (void)allocate(cuda_device(), size_t{1} << 50); });
  EXPECT_TRUE(message.starts_with("allocate: no room for 1125899906842624 bytes on cuda:0; "))
      << message;
  EXPECT_NE(message.find(" are free"), std::string::npos) << message;
  const Tensor tensor(DType::u8, {16}, cuda_device());
  fill_bytes(tensor.view().data, cuda_device(), 3, 16);
  EXPECT_EQ(tensor.to(cpu_device()).view().as<uint8_t>()[15], 3);
}

TEST_F(DeviceOnGpu, AGuardGoesThereAndBack) {
  const Device last = cuda_device(num_cuda_devices() - 1);
  const DeviceGuard outer(cuda_device(0));
  {
    const DeviceGuard inner(last);
    const Tensor tensor(DType::u8, {8}, last);
    fill_bytes(tensor.view().data, last, 9, 8);
    EXPECT_EQ(tensor.to(cpu_device()).view().as<uint8_t>()[7], 9);
  }
  const Tensor tensor(DType::u8, {8}, cuda_device(0));
  fill_bytes(tensor.view().data, cuda_device(0), 4, 8);
  EXPECT_EQ(tensor.to(last).to(cpu_device()).view().as<uint8_t>()[0], 4);
}

}  // namespace
}  // namespace tessera
