// Threads for work that would hold up the I/O thread.
// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::server {

class Worker {
 public:
  // At most `max_tasks` wait.
  Worker(size_t max_tasks, int num_threads);
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False if too many wait. A task must not throw.
  bool post(std::function<void()> task);
  void stop();  // waits for the tasks in progress and drops the others

 private:
  void run();

  size_t max_tasks_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopped_ = false;
  std::vector<std::thread> threads_;  // last: they use the members above
};

}  // namespace tessera::server
