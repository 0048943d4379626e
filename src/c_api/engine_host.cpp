// The engine's thread: tasks of callers between steps, outputs to their streams.
// SPDX-License-Identifier: MIT
#include "c_api/engine_host.h"

#include <unistd.h>

#include <exception>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {

EngineHost::EngineHost(std::unique_ptr<Engine> engine)
    : process_(getpid()), engine_(std::move(engine)) {
  thread_ = std::thread([this] { loop(); });
}

EngineHost::~EngineHost() {
  if (getpid() != process_) {  // a child process: the thread to join is the parent's
    thread_.detach();
    [[maybe_unused]] Engine* parents = engine_.release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  has_tasks_.notify_one();
  thread_.join();
}

void EngineHost::check_process() const {
  if (getpid() == process_) return;
  fail(concat("engine: it was made in process ", process_, " and this is its child ", getpid(),
              "; make an engine after fork, or use the spawn method of multiprocessing"));
}

const Tokenizer& EngineHost::tokenizer() const {
  const Tokenizer* tokenizer = engine_->tokenizer();
  if (tokenizer == nullptr) fail("engine: the model has no tokenizer");
  return *tokenizer;
}

void EngineHost::enqueue(std::function<void()> task) {
  check_process();
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) fail("engine: it is being destroyed");
    tasks_.push_back(std::move(task));
  }
  has_tasks_.notify_one();
}

template <class Task>
auto EngineHost::on_engine(Task&& task) -> decltype(task()) {
  using Result = decltype(task());
  // Shared, so that the future outlives a task that is dropped.
  auto promised = std::make_shared<std::packaged_task<Result()>>(std::forward<Task>(task));
  std::future<Result> result = promised->get_future();
  enqueue([promised] { (*promised)(); });
  return result.get();
}

std::vector<std::shared_ptr<OutputStream>> EngineHost::submit(std::vector<Request> requests) {
  return on_engine([this, &requests] {
    std::vector<std::shared_ptr<OutputStream>> streams;
    std::vector<RequestId> submitted;
    const size_t num_waiting_before = waiting_.size();
    try {
      for (Request& request : requests) {
        auto stream = std::make_shared<OutputStream>(request.num_outputs);
        const std::optional<RequestId> id = engine_->submit(request);
        if (id) {
          submitted.push_back(*id);
          running_.emplace(*id, stream);
        } else {
          waiting_.push_back({std::move(request), stream});
        }
        streams.push_back(std::move(stream));
      }
    } catch (const std::exception& error) {
      for (const RequestId id : submitted) {
        engine_->cancel(id);
        running_.erase(id);
      }
      waiting_.resize(num_waiting_before);
      if (requests.size() > 1 && dynamic_cast<const Error*>(&error) != nullptr) {
        fail(concat("request ", streams.size(), " of ", requests.size(), ": ", error.what()));
      }
      throw;
    }
    return streams;
  });
}

void EngineHost::cancel(const std::shared_ptr<OutputStream>& stream) {
  if (stream->has_ended()) return;
  enqueue([this, stream] {
    std::erase_if(waiting_, [&](const Waiting& one) { return one.stream == stream; });
    for (const auto& [id, running] : running_) {
      if (running == stream) return engine_->cancel(id);
    }
    stream->end_all(FinishReason::cancelled, {});
  });
}

EngineMetrics EngineHost::metrics() {
  return on_engine([this] {
    EngineMetrics metrics = engine_->metrics();
    metrics.num_waiting += static_cast<int64_t>(waiting_.size());
    return metrics;
  });
}

void EngineHost::run_tasks(std::deque<std::function<void()>>& tasks) {
  while (!tasks.empty()) {
    const std::function<void()> task = std::move(tasks.front());
    tasks.pop_front();  // first: the task may throw
    task();
  }
}

// Requests that were checked before are refused only once the engine is dead.
void EngineHost::start_waiting() {
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    try {
      const std::optional<RequestId> id = engine_->submit(first.request);
      if (!id) return;
      running_.emplace(*id, first.stream);
    } catch (const std::exception& error) {
      first.stream->end_all(FinishReason::error, error.what());
    }
    waiting_.pop_front();
  }
}

void EngineHost::deliver(std::vector<SequenceOutput> outputs) {
  for (SequenceOutput& output : outputs) {
    const auto found = running_.find(output.request);
    if (found == running_.end()) continue;
    const bool is_end = output.finish != FinishReason::none;
    found->second->add(std::move(output));
    if (is_end && found->second->has_ended()) running_.erase(found);
  }
}

void EngineHost::end_all(FinishReason reason, const std::string& error) {
  for (const auto& [id, stream] : running_) stream->end_all(reason, error);
  for (const Waiting& one : waiting_) one.stream->end_all(reason, error);
  running_.clear();
  waiting_.clear();
}

void EngineHost::loop() {
  std::deque<std::function<void()>> tasks;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      const auto may_go_on = [&] {
        return is_stopping_ || !tasks_.empty() || engine_->has_work() || !waiting_.empty();
      };
      has_tasks_.wait(lock, may_go_on);
      tasks.swap(tasks_);
      if (is_stopping_ && tasks.empty()) break;
    }
    try {
      run_tasks(tasks);
      start_waiting();
      if (engine_->has_work()) deliver(engine_->step());
    } catch (const std::exception& error) {  // memory ran out outside a step
      end_all(FinishReason::error, error.what());
    }
  }
  end_all(FinishReason::cancelled, {});
}

}  // namespace tessera::c_api
