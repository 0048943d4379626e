// The engine's thread: load, warm up, then step while there is work.
// SPDX-License-Identifier: MIT
#include "server/engine_loop.h"

#include <algorithm>
#include <chrono>

#include "tessera/core/error.h"

namespace tessera::server {
namespace {

constexpr auto kMetricsInterval = std::chrono::milliseconds(20);

// One token of one request: proves that the model runs before anybody is told that it does.
void warm_up(Engine& engine) {
  Request request;
  request.prompt = {0};
  request.max_new_tokens = 1;
  request.sampling.temperature = 0;
  const std::vector<SequenceOutput> outputs = run_to_end(engine, std::move(request));
  if (outputs.front().finish == FinishReason::error) fail(outputs.front().error);
}

}  // namespace

EngineLoop::EngineLoop(Events events) : events_(std::move(events)) {}

EngineLoop::~EngineLoop() { stop(); }

void EngineLoop::stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
  }
  woken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EngineLoop::start() {
  thread_ = std::thread([this] { run(); });
}

void EngineLoop::submit(Ticket ticket, Request request) {
  {
    const std::scoped_lock lock(mutex_);
    mail_.submitted.emplace_back(ticket, std::move(request));
  }
  woken_.notify_one();
}

void EngineLoop::cancel(Ticket ticket) {
  {
    const std::scoped_lock lock(mutex_);
    mail_.cancelled.push_back(ticket);
  }
  woken_.notify_one();
}

std::vector<Delivery> EngineLoop::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(outbox_, {});
}

EngineMetrics EngineLoop::metrics() const {
  const std::scoped_lock lock(mutex_);
  return metrics_;
}

void EngineLoop::run() {
  std::unique_ptr<Engine> engine;
  try {
    engine = events_.load();
    warm_up(*engine);
    keep_metrics(*engine, /*is_due=*/true);
    events_.ready(*engine);
  } catch (...) {
    return events_.failed(std::current_exception());
  }
  serve(*engine);
}

void EngineLoop::serve(Engine& engine) {
  bool is_dead = false;
  while (true) {
    Mail mail;
    {
      std::unique_lock lock(mutex_);
      woken_.wait(lock, [&] { return is_stopped_ || !mail_.is_empty() || engine.has_work(); });
      if (is_stopped_) return;
      mail = std::exchange(mail_, {});
    }
    take_in(engine, std::move(mail));
    std::vector<Delivery> news;
    bool has_error = false;
    for (SequenceOutput& output : engine.step()) {
      const auto found = tickets_.find(output.request);
      if (found == tickets_.end()) continue;
      has_error |= output.finish == FinishReason::error;
      const Ticket ticket = found->second.first;
      const bool is_last = output.finish != FinishReason::none && --found->second.second == 0;
      if (is_last) {
        requests_.erase(ticket);
        tickets_.erase(found);
      }
      news.push_back({.ticket = ticket,
                      .output = std::move(output),
                      .is_last = is_last,
                      .time = Clock::now()});
    }
    keep_metrics(engine, has_error || !engine.has_work());
    if (!is_dead && metrics().is_dead) {
      is_dead = true;
      const auto failed =
          std::ranges::find_if(news, [](const Delivery& one) { return !one.output.error.empty(); });
      events_.died(failed == news.end() ? std::string("a step failed") : failed->output.error);
    }
    deliver(std::move(news));
  }
}

void EngineLoop::take_in(Engine& engine, Mail mail) {
  for (auto& [ticket, request] : mail.submitted) {
    const int32_t num_outputs = request.num_outputs;
    try {
      const std::optional<RequestId> id = engine.submit(std::move(request));
      if (!id) {
        refuse(ticket, "the engine's queue is full");
        continue;
      }
      requests_.emplace(ticket, *id);
      tickets_.emplace(*id, std::pair(ticket, num_outputs));
    } catch (const std::exception& error) {
      refuse(ticket, error.what());
    }
  }
  for (const Ticket ticket : mail.cancelled) {
    const auto found = requests_.find(ticket);
    if (found != requests_.end()) engine.cancel(found->second);
  }
}

void EngineLoop::refuse(Ticket ticket, const std::string& why) {
  std::vector<Delivery> news(1);
  news.front().ticket = ticket;
  news.front().is_last = true;
  news.front().output.finish = FinishReason::error;
  news.front().output.error = why;
  news.front().time = Clock::now();
  deliver(std::move(news));
}

void EngineLoop::deliver(std::vector<Delivery> news) {
  if (news.empty()) return;
  bool was_empty = false;
  {
    const std::scoped_lock lock(mutex_);
    was_empty = outbox_.empty();
    std::ranges::move(news, std::back_inserter(outbox_));
  }
  if (was_empty) events_.delivered();
}

void EngineLoop::keep_metrics(const Engine& engine, bool is_due) {
  const Clock::time_point now = Clock::now();
  if (!is_due && now - metrics_time_ < kMetricsInterval) return;
  metrics_time_ = now;
  const EngineMetrics metrics = engine.metrics();
  const std::scoped_lock lock(mutex_);
  metrics_ = metrics;
}

}  // namespace tessera::server
