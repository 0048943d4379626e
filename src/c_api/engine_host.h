// An engine on a thread of its own, so that any thread may submit requests and wait for text.
// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::c_api {

// One request as its caller sees it. The engine's thread adds output, which is joined per sequence
// until the caller takes it; a caller who comes late finds one large piece in place of many.
class OutputStream {
 public:
  explicit OutputStream(int32_t num_outputs);
  ~OutputStream();
  OutputStream(const OutputStream&) = delete;
  OutputStream& operator=(const OutputStream&) = delete;

  void add(SequenceOutput&& news);
  void end_all(FinishReason reason, const std::string& error);

  // What one sequence has gained; with `whole` only sequences that have ended. Nothing if time is
  // up (timeout_s >= 0), or if everything was taken.
  std::optional<SequenceOutput> take(double timeout_s, bool whole);
  bool is_over() const;  // everything has ended and was taken
  bool has_ended() const;
  int descriptor();  // readable while take would not wait

 private:
  struct Pending {
    SequenceOutput output = {};
    bool has_news = false;
    bool was_taken = false;  // with its end
  };

  Pending* find(bool whole);
  void signal();
  bool is_over_locked() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Pending> pending_;  // [num_outputs]
  int descriptor_ = -1;           // an eventfd, once somebody has asked for it
};

class EngineHost {
 public:
  explicit EngineHost(std::unique_ptr<Engine> engine);
  ~EngineHost();
  EngineHost(const EngineHost&) = delete;
  EngineHost& operator=(const EngineHost&) = delete;

  // Refuses all if the engine refuses one, with its place among them in the message.
  std::vector<std::shared_ptr<OutputStream>> submit(std::vector<Request> requests);
  void cancel(const std::shared_ptr<OutputStream>& stream);
  EngineMetrics metrics();

  // What does not change once the model is loaded may be read by any thread.
  const Engine& engine() const { return *engine_; }
  const Tokenizer& tokenizer() const;

  // Refuses calls in a child process, which has no engine thread.
  void check_process() const;

 private:
  struct Waiting {
    Request request;
    std::shared_ptr<OutputStream> stream;
  };

  // Runs `task` on the engine's thread between two steps, and returns or throws as it does.
  template <class Task>
  auto on_engine(Task&& task) -> decltype(task());
  void enqueue(std::function<void()> task);
  void loop();
  void run_tasks(std::deque<std::function<void()>>& tasks);
  void start_waiting();
  void deliver(std::vector<SequenceOutput> outputs);
  void end_all(FinishReason reason, const std::string& error);

  const pid_t process_;
  std::unique_ptr<Engine> engine_;

  // Of the engine's thread:
  std::map<RequestId, std::shared_ptr<OutputStream>> running_;
  std::deque<Waiting> waiting_;  // checked requests for which the engine's queue had no room

  std::mutex mutex_;
  std::condition_variable has_tasks_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace tessera::c_api
