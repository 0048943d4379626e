// Host buffers: ordinary memory for the CPU, moved and not copied.
// SPDX-License-Identifier: MIT
#include "tessera/core/host_buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

TEST(HostBuffer, HoldsBytesAndMovesThem) {
  HostBuffer buffer(cpu_device(), 100);
  EXPECT_EQ(buffer.size_bytes(), 100u);
  std::memset(buffer.as<char>(), 7, 100);
  HostBuffer moved = std::move(buffer);
  EXPECT_EQ(moved.as<char>()[99], 7);
  HostBuffer other(cpu_device(), 8);
  other = std::move(moved);
  EXPECT_EQ(other.size_bytes(), 100u);
  EXPECT_EQ(other.as<char>()[0], 7);
  EXPECT_EQ(HostBuffer().as<char>(), nullptr);
  EXPECT_EQ(HostBuffer(cpu_device(), 0).as<char>(), nullptr);
}

TEST(FreeDeviceBytes, AsksGpusOnly) {
  EXPECT_NE(
      testing::message_of([] { free_device_bytes(cpu_device()); }).find("was asked about cpu"),
      std::string::npos);
}

}  // namespace
}  // namespace tessera
