// Tasks in order, on one thread.
// SPDX-License-Identifier: MIT
#include "server/worker.h"

#include <utility>

namespace tessera::server {

void Worker::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
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
