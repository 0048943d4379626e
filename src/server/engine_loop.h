// The engine on a thread of its own, behind two mailboxes: requests in, outputs out.
// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/engine/engine.h"

namespace tessera::server {

using Ticket = uint64_t;  // chosen by the caller, one for each request

struct Delivery {
  Ticket ticket = 0;
  SequenceOutput output = {};
  bool is_last = false;         // of its ticket
  Clock::time_point time = {};  // when the step ended
};

// Nothing here blocks its caller, and nothing a caller does blocks the engine: outputs wait in the
// mailbox until they are taken. The caller bounds how many requests it submits.
class EngineLoop {
 public:
  // All are called on the engine's thread.
  struct Events {
    std::function<std::unique_ptr<Engine>()> load;
    std::function<void(Engine&)> ready;                // loaded, and a forward pass has succeeded
    std::function<void(std::exception_ptr)> failed;    // loading; the thread ends
    std::function<void()> delivered;                   // the mailbox is no longer empty
    std::function<void(const std::string& why)> died;  // the engine can go on no more
  };

  explicit EngineLoop(Events events);
  ~EngineLoop();  // stops
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  void start();
  void stop();  // waits for the step in progress; no event follows
  void submit(Ticket ticket, Request request);
  void cancel(Ticket ticket);  // takes effect with the next step
  std::vector<Delivery> take();
  EngineMetrics metrics() const;  // as of the last step, or at most 20 ms before it

 private:
  struct Mail {
    std::vector<std::pair<Ticket, Request>> submitted;
    std::vector<Ticket> cancelled;
    bool is_empty() const { return submitted.empty() && cancelled.empty(); }
  };

  void run();
  void serve(Engine& engine);
  void take_in(Engine& engine, Mail mail);
  void deliver(std::vector<Delivery> news);
  void refuse(Ticket ticket, const std::string& why);
  void keep_metrics(const Engine& engine, bool is_due);

  Events events_;
  mutable std::mutex mutex_;
  std::condition_variable woken_;
  Mail mail_;
  std::vector<Delivery> outbox_;
  EngineMetrics metrics_;
  bool is_stopped_ = false;
  // Of the engine's thread:
  std::map<Ticket, RequestId> requests_;
  std::map<RequestId, std::pair<Ticket, int32_t>> tickets_;  // and its unfinished sequences
  Clock::time_point metrics_time_ = {};
  std::thread thread_;
};

}  // namespace tessera::server
