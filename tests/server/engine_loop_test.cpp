// The engine's thread, with an engine that only counts.
// SPDX-License-Identifier: MIT
#include "server/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "tessera/core/error.h"

namespace tessera::server {
namespace {

// Every step adds one token to every request; token number max_new_tokens ends it.
class CountingEngine final : public Engine {
 public:
  std::optional<RequestId> submit(Request request) override {
    if (request.prompt.empty()) fail("prompt is empty");
    if (request.prompt.front() == 99) return std::nullopt;
    active_.push_back({++last_id_, std::move(request), 0});
    return last_id_;
  }
  void cancel(RequestId id) override {
    for (Active& one : active_) one.is_cancelled |= one.id == id;
  }
  std::vector<SequenceOutput> step() override {
    std::vector<SequenceOutput> outputs;
    for (Active& one : active_) {
      SequenceOutput& output = outputs.emplace_back();
      output.request = one.id;
      is_dead_ |= one.request.prompt.front() == 13;
      if (is_dead_) {
        output.finish = FinishReason::error;
        output.error = "kernel x faulted";
      } else if (one.is_cancelled) {
        output.finish = FinishReason::cancelled;
      } else {
        output.tokens.resize(1);
        ++one.num_tokens;
        if (one.num_tokens == one.request.max_new_tokens) output.finish = FinishReason::length;
      }
      one.is_over = output.finish != FinishReason::none;
    }
    std::erase_if(active_, [](const Active& one) { return one.is_over; });
    return outputs;
  }
  bool has_work() const override { return !active_.empty(); }
  EngineMetrics metrics() const override {
    EngineMetrics metrics;
    metrics.is_dead = is_dead_;
    metrics.num_running = std::ssize(active_);
    return metrics;
  }
  const Tokenizer* tokenizer() const override { return nullptr; }
  int64_t max_context() const override { return 1000; }
  int64_t vocab() const override { return 100; }
  int64_t hidden() const override { return 4; }
  Device device() const override { return cpu_device(); }

 private:
  struct Active {
    RequestId id;
    Request request;
    int64_t num_tokens;
    bool is_cancelled = false;
    bool is_over = false;
  };
  std::vector<Active> active_;
  RequestId last_id_ = 0;
  bool is_dead_ = false;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  EngineLoopTest()
      : loop_({.load = [] { return std::make_unique<CountingEngine>(); },
               .ready = [this](Engine&) { ready_.set_value(); },
               .failed = [](std::exception_ptr) { FAIL(); },
               .delivered = [this] { ++num_signals_; },
               .died = [this](const std::string& why) { died_.set_value(why); }}) {
    loop_.start();
    ready_.get_future().wait();
  }

  Request request(int32_t token, int64_t max_new_tokens) {
    Request made;
    made.prompt = {token};
    made.max_new_tokens = max_new_tokens;
    return made;
  }
  // All deliveries until the last of `num_tickets` tickets.
  std::vector<Delivery> collect(int num_tickets) {
    std::vector<Delivery> all;
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (num_tickets > 0 && Clock::now() < end) {
      for (Delivery& one : loop_.take()) {
        num_tickets -= one.is_last ? 1 : 0;
        all.push_back(std::move(one));
      }
      std::this_thread::yield();
    }
    EXPECT_EQ(num_tickets, 0);
    return all;
  }

  std::promise<void> ready_;
  std::promise<std::string> died_;
  std::atomic<int> num_signals_ = 0;
  EngineLoop loop_;
};

TEST_F(EngineLoopTest, DeliversEveryTokenToItsTicket) {
  loop_.submit(7, request(1, 5));
  loop_.submit(8, request(1, 3));
  int64_t num_of_seven = 0, num_of_eight = 0;
  for (const Delivery& one : collect(2)) (one.ticket == 7 ? num_of_seven : num_of_eight) += 1;
  EXPECT_EQ(num_of_seven, 5);
  EXPECT_EQ(num_of_eight, 3);
}

TEST_F(EngineLoopTest, DoesNotWaitForSlowReaders) {
  loop_.submit(1, request(1, 500));
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (loop_.metrics().num_running > 0 || num_signals_ == 0) ASSERT_LT(Clock::now(), end);
  EXPECT_EQ(num_signals_, 1);  // nobody took the first delivery, so no second signal
  EXPECT_EQ(collect(1).size(), 500u);
}

TEST_F(EngineLoopTest, CancelsWithinAStep) {
  loop_.submit(1, request(1, 1000000000));
  while (loop_.take().empty()) std::this_thread::yield();
  loop_.cancel(1);
  EXPECT_EQ(collect(1).back().output.finish, FinishReason::cancelled);
}

TEST_F(EngineLoopTest, ReportsWhatTheEngineRefuses) {
  loop_.submit(1, Request{});
  loop_.submit(2, request(99, 1));
  const std::vector<Delivery> all = collect(2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].output.error, "prompt is empty");
  EXPECT_EQ(all[1].output.finish, FinishReason::error);
}

TEST_F(EngineLoopTest, SaysWhenTheEngineDies) {
  loop_.submit(1, request(1, 1000000000));
  loop_.submit(2, request(13, 1));
  for (const Delivery& one : collect(2)) {
    EXPECT_TRUE(!one.is_last || one.output.error == "kernel x faulted") << one.output.error;
  }
  EXPECT_EQ(died_.get_future().get(), "kernel x faulted");
  EXPECT_TRUE(loop_.metrics().is_dead);
}

TEST(EngineLoopFailure, OfLoadingIsReported) {
  std::promise<std::string> why;
  EngineLoop loop({.load = []() -> std::unique_ptr<Engine> { fail("no weights"); },
                   .ready = [](Engine&) { FAIL(); },
                   .failed =
                       [&](std::exception_ptr error) {
                         try {
                           std::rethrow_exception(error);
                         } catch (const Error& failure) {
                           why.set_value(failure.what());
                         }
                       },
                   .delivered = [] {},
                   .died = [](const std::string&) {}});
  loop.start();
  EXPECT_EQ(why.get_future().get(), "no weights");
}

}  // namespace
}  // namespace tessera::server
