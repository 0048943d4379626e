// A forked child has none of the pool's threads: its loops run, on one thread or on new ones.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "tests/core/threads.h"

namespace tessera::testing {
namespace {

constexpr unsigned kMostSeconds = 20;  // a child that hangs is ended by its alarm

// Runs body in a child: its exit status is what body returns, or -1 if a signal ended it.
template <class Body>
int status_of_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSeconds);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int64_t sum_to(int64_t count) {
  std::atomic<int64_t> sum = 0;
  parallel_tasks(count, [&](int64_t i) { sum += i; });
  return sum;
}

TEST(Fork, AChildRunsLoopsOnOneThread) {
  const Threads threads(4);
  ASSERT_EQ(sum_to(1000), 499'500);
  const auto child = [] {
    if (num_threads() != 1) return 1;
    const std::thread::id self = std::this_thread::get_id();
    int64_t sum = 0;
    bool moved = false;
    parallel_tasks(1000, [&](int64_t i) {
      sum += i;
      moved = moved || std::this_thread::get_id() != self;
    });
    return moved ? 2 : sum != 499'500 ? 3 : 0;
  };
  EXPECT_EQ(status_of_child(child), 0);
  EXPECT_EQ(num_threads(), 4);
  EXPECT_EQ(sum_to(1000), 499'500);  // the parent's pool is as it was
}

TEST(Fork, AGrandchildRunsLoopsToo) {
  const Threads threads(2);
  sum_to(1000);
  EXPECT_EQ(status_of_child([] {
              sum_to(100);
              return status_of_child([] { return sum_to(1000) == 499'500 ? 0 : 1; });
            }),
            0);
}

#if !defined(__SANITIZE_THREAD__)  // the thread sanitizer cannot start threads after a fork
TEST(Fork, AChildMayAskForThreadsOfItsOwn) {
  const Threads threads(4);
  sum_to(1000);
  EXPECT_EQ(status_of_child([] {
              set_num_threads(3);
              std::latch all(3);
              parallel_tasks(3, [&](int64_t) { all.arrive_and_wait(); });
              return 0;
            }),
            0);
}
#endif

// Forks at arbitrary moments while another thread runs loops.
TEST(Fork, WhileAnotherThreadIsInLoops) {
  const Threads threads(3);
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) sum_to(20);
  });
  int num_failed = 0;
  for (int i = 0; i < 50; ++i) {
    num_failed += status_of_child([] { return sum_to(1000) == 499'500 ? 0 : 1; }) != 0 ? 1 : 0;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(num_failed, 0);
}

}  // namespace
}  // namespace tessera::testing
