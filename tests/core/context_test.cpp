// The workspace hands out what it has, aligned, and no more.
// SPDX-License-Identifier: MIT
#include "tessera/core/context.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "tests/core/message_of.h"

namespace tessera {
namespace {

using testing::message_of;

TEST(Workspace, EveryPieceIsAlignedAndApart) {
  Workspace workspace(cpu_device(), 1024);
  auto* first = static_cast<unsigned char*>(workspace.take(1));
  auto* second = static_cast<unsigned char*>(workspace.take(300));
  auto* third = static_cast<unsigned char*>(workspace.take(256));
  for (const unsigned char* piece : {first, second, third}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece) % 256, 0u);
  }
  EXPECT_EQ(second - first, 256);
  EXPECT_EQ(third - second, 512);
  EXPECT_EQ(workspace.used_bytes(), 1024);
  std::memset(first, 1, 1024);  // all of it is there: the address sanitiser would object
}

TEST(Workspace, AllOfItCanBeTakenAtOnce) {
  for (const int64_t size : {0, 1, 256, 1000}) {
    Workspace workspace(cpu_device(), size);
    EXPECT_EQ(workspace.size_bytes(), size);
    std::memset(workspace.take(size), 0, static_cast<size_t>(size));
    EXPECT_EQ(workspace.used_bytes(), size);
  }
}

TEST(Workspace, ResetGivesTheSameMemoryAgain) {
  Workspace workspace(cpu_device(), 512);
  void* const first = workspace.take(512);
  workspace.reset();
  EXPECT_EQ(workspace.used_bytes(), 0);
  EXPECT_EQ(workspace.take(100), first);
}

TEST(Workspace, SaysHowMuchIsMissing) {
  Workspace workspace(cpu_device(), 1000);
  (void)workspace.take(100);
  const std::string message = message_of([&] { (void)workspace.take(800); });
  EXPECT_TRUE(
      message.starts_with("Workspace: asked for 800 bytes; 744 of 1000 are left; make it "
                          "at least 1056 bytes"))
      << message;
  EXPECT_EQ(workspace.used_bytes(), 100);  // a refusal takes nothing
  (void)workspace.take(744);
  const std::string full = message_of([&] { (void)workspace.take(1); });
  EXPECT_TRUE(full.starts_with("Workspace: asked for 1 bytes; 0 of 1000 are left")) << full;
}

TEST(Workspace, NegativeSizesAreRefused) {
  EXPECT_TRUE(message_of([] {
                Workspace workspace(cpu_device(), -1);
              }).starts_with("Workspace: size is -1 bytes; must not be negative"));
  Workspace workspace(cpu_device(), 10);
  EXPECT_TRUE(
      message_of([&] { (void)workspace.take(-5); }).starts_with("Workspace: asked for -5 bytes"));
}

TEST(Workspace, StaysWhereContextsPointAtIt) {
  static_assert(!std::is_move_constructible_v<Workspace>);
  static_assert(!std::is_copy_constructible_v<Workspace>);
}

}  // namespace
}  // namespace tessera
