// Tasks in order, on a few threads.
// SPDX-License-Identifier: MIT
#include "server/worker.h"

#include <utility>

namespace tessera::server {

Worker::Worker(size_t max_tasks, int num_threads) : max_tasks_(max_tasks) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { run(); });
}

void Worker::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
  }
  woken_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

bool Worker::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (tasks_.size() >= max_tasks_) return false;
    tasks_.push_back(std::move(task));
  }
  woken_.notify_one();
  return true;
}

void Worker::run() {
  while (true) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [&] { return is_stopped_ || !tasks_.empty(); });
      if (is_stopped_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace tessera::server
