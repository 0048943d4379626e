// Loops over threads: every item once, exceptions, nesting, several callers, idle threads that
// sleep.
// SPDX-License-Identifier: MIT
#include "core/parallel.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <latch>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/threads.h"

namespace tessera::testing {
namespace {

using std::chrono::milliseconds;

// Seconds of CPU time that all threads of this process have used.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A loop whose items wait until `count` threads are in it.
void gather(int count) {
  std::latch all_here(count);
  parallel_tasks(count, [&](int64_t) { all_here.arrive_and_wait(); });
}

TEST(Parallel, RunsEveryItemOnce) {
  for (const int count : {1, 2, 3, 8}) {
    const Threads threads(count);
    for (const int64_t num_items : {0, 1, 2, 7, 100, 4097}) {
      for (const int64_t elements : {0, 1, 1000, 1'000'000}) {
        std::vector<std::atomic<int>> times(static_cast<size_t>(num_items));
        parallel_for(num_items, elements, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
        for (const auto& time : times) ASSERT_EQ(time, 1) << num_items << " items, " << count;
      }
      std::vector<std::atomic<int>> times(static_cast<size_t>(num_items));
      parallel_tasks(num_items, [&](int64_t i) { ++times[static_cast<size_t>(i)]; });
      for (const auto& time : times) ASSERT_EQ(time, 1) << num_items << " tasks, " << count;
    }
  }
}

TEST(Parallel, UsesAllThreads) {
  const Threads threads(5);
  gather(5);  // does not end before five threads are in it
}

TEST(Parallel, AFewThreadsAreUsedAfterMany) {
  {
    const Threads many(6);
    gather(6);
  }
  const Threads few(3);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int i = 0; i < 100; ++i) {
    parallel_tasks(50, [&](int64_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(seen.size(), 3u);
  gather(3);
}

TEST(Parallel, TheExceptionOfTheLowestItemComesOut) {
  for (const int count : {1, 2, 8}) {
    const Threads threads(count);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> times(64);
      try {
        parallel_tasks(64, [&](int64_t i) {
          ++times[static_cast<size_t>(i)];
          if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        ASSERT_STREQ(error.what(), "7") << count << " threads";
      }
      for (size_t i = 0; i < 8; ++i) ASSERT_EQ(times[i], 1) << "item " << i << " below it";
    }
  }
}

TEST(Parallel, ItemsAfterAnExceptionAreSkipped) {
  const Threads threads(2);
  std::atomic<int> num_run = 0;
  const auto body = [&](int64_t i) {
    if (i == 0) throw std::bad_alloc();
    ++num_run;
    std::this_thread::sleep_for(milliseconds(1));
  };
  EXPECT_THROW(parallel_tasks(10'000, body), std::bad_alloc);
  EXPECT_LT(num_run, 5000);
  num_run = 0;
  parallel_tasks(100, [&](int64_t) { ++num_run; });  // the pool still works
  EXPECT_EQ(num_run, 100);
}

TEST(Parallel, WhatAThreadThrowsBeforeItsFirstItemComesOut) {
  for (const int count : {1, 4}) {
    const Threads threads(count);
    const auto body = [](Share& share) {
      const std::vector<double> state(64);
      if (state.size() == 64) throw std::length_error("state");
      while (share.next()) {
      }
    };
    EXPECT_THROW(parallel_shares(100, 1, body), std::length_error);
  }
}

TEST(Parallel, ALoopInALoopRunsOnItsThread) {
  const Threads threads(4);
  std::atomic<int64_t> sum = 0;
  std::atomic<bool> moved = false;
  parallel_tasks(16, [&](int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    parallel_tasks(16, [&](int64_t i) {
      sum += i;
      if (std::this_thread::get_id() != outer) moved = true;
    });
  });
  EXPECT_EQ(sum, 16 * 120);
  EXPECT_FALSE(moved);
}

TEST(Parallel, ManyCallersAtOnce) {
  const Threads threads(4);
  std::vector<std::thread> callers;
  std::atomic<int> num_wrong = 0;
  for (int caller = 0; caller < 12; ++caller) {  // more loops at once than the pool has slots
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum = 0;
        const bool throws = (round + caller) % 3 == 0;
        try {
          parallel_tasks(40, [&](int64_t i) {
            sum += i;
            if (throws && i == 39) throw std::runtime_error(std::to_string(caller));
          });
          if (throws || sum != 780) ++num_wrong;
        } catch (const std::runtime_error& error) {
          if (!throws || error.what() != std::to_string(caller)) ++num_wrong;
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(num_wrong, 0);
}

// Two workers are stuck in another caller's loop, and nobody is free to help.
TEST(Parallel, DoesNotWaitForAThreadThatNeverComes) {
  const Threads threads(3);
  std::latch stuck(3);
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    parallel_tasks(3, [&](int64_t) {
      stuck.arrive_and_wait();
      is_done.wait(false);
    });
  });
  stuck.wait();
  std::atomic<int> num_run = 0;
  parallel_tasks(1000, [&](int64_t) { ++num_run; });
  EXPECT_EQ(num_run, 1000);
  is_done = true;
  is_done.notify_all();
  other.join();
}

TEST(Parallel, IdleThreadsUseNoCpu) {
  const Threads threads(4);
  gather(4);
  std::this_thread::sleep_for(milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.03);
}

TEST(Parallel, ACallerThatWaitsForOthersUsesNoCpu) {
  const Threads threads(2);
  const std::thread::id caller = std::this_thread::get_id();
  const double before = cpu_seconds();
  std::latch both(2);
  parallel_tasks(2, [&](int64_t) {
    both.arrive_and_wait();
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(milliseconds(300));
  });
  EXPECT_LT(cpu_seconds() - before, 0.03);
}

TEST(Parallel, WorkersLeaveSignalsToTheProgram) {
  const Threads threads(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::latch both(2);
  parallel_tasks(2, [&](int64_t) {
    both.arrive_and_wait();
    if (std::this_thread::get_id() == caller) return;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGINT), 1);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), 1);
    EXPECT_EQ(sigismember(&blocked, SIGBUS), 0);  // raised when a mapped file has shrunk
  });
}

// Settings that are read once per process: each test starts its own process.
class ParallelDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    unsetenv("TESSERA_THREADS");
    unsetenv("OMP_NUM_THREADS");
  }
  static void expect_threads(const char* ours, const char* openmp, int want) {
    setenv("TESSERA_THREADS", ours, 1);
    setenv("OMP_NUM_THREADS", openmp, 1);
    EXPECT_EXIT(std::exit(num_threads()), ::testing::ExitedWithCode(want), "")
        << "'" << ours << "' and '" << openmp << "'";
  }
};

TEST_F(ParallelDeathTest, TheEnvironmentSaysHowManyThreads) {
  expect_threads("5", "3", 5);
  expect_threads("", "3", 3);
  expect_threads("0", "6,2", 6);
  expect_threads("many", "7", 7);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(ParallelDeathTest, RunsOnTheThreadsTheSystemGrants) {
  const auto run = [] {
    set_num_threads(64);
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 64 << 20;  // room for some stacks of 8 MiB, not for 63
    setrlimit(RLIMIT_AS, &limit);
    std::atomic<int> num_run = 0;
    for (int i = 0; i < 3; ++i) parallel_tasks(1000, [&](int64_t) { ++num_run; });
    std::exit(num_run == 3000 ? 0 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace tessera::testing
