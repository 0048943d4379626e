// The names of the last launches, as faults and hangs show them.
// SPDX-License-Identifier: MIT
#include "core/launch_log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

void fill_with(const char* name) {
  for (size_t i = 0; i < kRememberedLaunches; ++i) log_launch(name);
}

TEST(LaunchLog, NamesTheNewestFirstAndEachOnce) {
  fill_with("first");
  EXPECT_EQ(last_launches(), "first");
  log_launch("second");
  log_launch("third");
  log_launch("second");
  EXPECT_EQ(last_launches(), "second, third, first");
  fill_with("last");
  EXPECT_EQ(last_launches(), "last");
}

TEST(LaunchLog, ShowsKernelsWithoutNamespacesAndArguments) {
  fill_with("_ZN7tessera7kernels11norm_kernelIfLi4EEEvNS0_10NormParamsE");
  EXPECT_EQ(last_launches(), "norm_kernel");
  fill_with("_ZN7tessera12_GLOBAL__N_111spin_kernelEi");
  EXPECT_EQ(last_launches(), "spin_kernel");
  fill_with("cublasLtMatmul");
  EXPECT_EQ(last_launches(), "cublasLtMatmul");
}

TEST(LaunchLog, IsWrittenByManyThreads) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int j = 0; j < 10000; ++j) log_launch(i % 2 == 0 ? "even" : "odd");
    });
  }
  for (int i = 0; i < 100; ++i) EXPECT_NE(last_launches(), "");
  for (std::thread& thread : threads) thread.join();
  const std::string last = last_launches();
  EXPECT_TRUE(last == "even" || last == "odd" || last == "even, odd" || last == "odd, even")
      << last;
}

}  // namespace
}  // namespace tessera
