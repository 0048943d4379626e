// A thread for work that would hold up the I/O thread.
// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace tessera::server {

class Worker {
 public:
  // At most `max_tasks` wait.
  explicit Worker(size_t max_tasks) : max_tasks_(max_tasks), thread_([this] { run(); }) {}
  ~Worker() { stop(); }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False if too many wait. A task must not throw.
  bool post(std::function<void()> task);
  void stop();  // waits for the task in progress and drops the others

 private:
  void run();

  size_t max_tasks_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopped_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace tessera::server
