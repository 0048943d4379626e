// The engine's thread behind the C ABI, with an engine that counts instead of computing: many
// callers at once, a full queue, cancelled requests, steps that fail, and its end at any time.
// SPDX-License-Identifier: MIT
#include "c_api/engine_host.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tessera/core/error.h"

namespace tessera::testing {
namespace {

using c_api::EngineHost;
using c_api::OutputStream;

// Gives each request the tokens 0, 1, 2, ... up to its max_new_tokens, one in each step. Checks
// that only one thread at a time calls it.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(size_t max_queue = 8) : max_queue_(max_queue) {}

  std::optional<RequestId> submit(Request request) override {
    const Entry entry(*this);
    if (request.prompt.empty()) fail("prompt is empty");
    if (requests_.size() >= max_queue_) return std::nullopt;
    requests_[++last_id_] = {std::move(request), 0, false};
    return last_id_;
  }
  void cancel(RequestId id) override {
    const Entry entry(*this);
    if (const auto found = requests_.find(id); found != requests_.end()) {
      found->second.is_cancelled = true;
    }
  }
  std::vector<SequenceOutput> step() override {
    const Entry entry(*this);
    if (fails_at_ > 0 && ++num_steps_ == fails_at_) throw Error("the step broke");
    std::vector<SequenceOutput> outputs;
    for (auto it = requests_.begin(); it != requests_.end();) {
      Running& one = it->second;
      bool has_ended = one.is_cancelled;
      for (int32_t index = 0; index < one.request.num_outputs; ++index) {
        SequenceOutput& output = outputs.emplace_back();
        output.request = it->first;
        output.index = index;
        if (one.is_cancelled) {
          output.finish = FinishReason::cancelled;
          continue;
        }
        output.tokens = {{.token = one.count}};
        output.text = std::to_string(one.count % 10);
        if (one.count + 1 == one.request.max_new_tokens) output.finish = FinishReason::length;
        has_ended = output.finish != FinishReason::none;
      }
      ++one.count;
      it = has_ended ? requests_.erase(it) : std::next(it);
    }
    return outputs;
  }
  bool has_work() const override { return !requests_.empty(); }
  EngineMetrics metrics() const override { return {.num_running = std::ssize(requests_)}; }
  const Tokenizer* tokenizer() const override { return nullptr; }
  int64_t max_context() const override { return 1 << 20; }
  int64_t vocab() const override { return 1 << 20; }
  int64_t hidden() const override { return 4; }
  Device device() const override { return cpu_device(); }

  void fail_at(int64_t step) { fails_at_ = step; }

 private:
  struct Running {
    Request request;
    int32_t count = 0;
    bool is_cancelled = false;
  };
  struct Entry {
    explicit Entry(CountingEngine& engine) : engine(engine) { EXPECT_EQ(engine.num_inside_++, 0); }
    ~Entry() { --engine.num_inside_; }
    CountingEngine& engine;
  };

  const size_t max_queue_;
  std::map<RequestId, Running> requests_;
  RequestId last_id_ = 0;
  int64_t num_steps_ = 0, fails_at_ = 0;
  std::atomic<int> num_inside_ = 0;
};

Request count_to(int64_t count, int32_t num_outputs = 1) {
  Request request;
  request.prompt = {1};
  request.max_new_tokens = count;
  request.num_outputs = num_outputs;
  return request;
}

// All that is left of a stream, per sequence.
std::map<int32_t, std::vector<int32_t>> read_all(OutputStream& stream, bool whole) {
  std::map<int32_t, std::vector<int32_t>> tokens;
  while (std::optional<SequenceOutput> output = stream.take(-1, whole)) {
    for (const OutputToken& token : output->tokens) tokens[output->index].push_back(token.token);
  }
  return tokens;
}

std::vector<int32_t> first(int32_t count) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(i);
  return tokens;
}

TEST(EngineHost, GivesEveryCallerItsOwnTokens) {
  EngineHost host(std::make_unique<CountingEngine>());
  std::vector<std::thread> callers;
  for (int32_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&host, caller] {
      for (int32_t round = 0; round < 30; ++round) {
        const int32_t count = 1 + (caller * 7 + round) % 13, num_outputs = 1 + round % 3;
        const auto streams = host.submit({count_to(count, num_outputs), count_to(2)});
        const auto tokens = read_all(*streams[0], caller % 2 == 0);
        EXPECT_EQ(std::ssize(tokens), num_outputs);
        for (const auto& [index, list] : tokens) EXPECT_EQ(list, first(count)) << index;
        EXPECT_EQ(read_all(*streams[1], false).at(0), first(2));
        EXPECT_GE(host.metrics().num_running, 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(EngineHost, JoinsWhatASlowCallerHasNotTaken) {
  EngineHost host(std::make_unique<CountingEngine>());
  const auto stream = host.submit({count_to(50)}).front();
  while (!stream->has_ended()) std::this_thread::yield();
  const std::optional<SequenceOutput> output = stream->take(0, false);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->tokens.size(), 50u);
  EXPECT_EQ(output->text.size(), 50u);
  EXPECT_TRUE(stream->is_over());
  EXPECT_FALSE(stream->take(-1, false));
}

TEST(EngineHost, TimeIsUp) {
  const auto stream = std::make_shared<OutputStream>(1);
  EXPECT_FALSE(stream->take(0, false));
  EXPECT_FALSE(stream->take(0.01, true));
  EXPECT_FALSE(stream->is_over());
}

TEST(EngineHost, AFullQueueMakesRequestsWait) {
  EngineHost host(std::make_unique<CountingEngine>(2));
  const auto streams = host.submit(std::vector<Request>(20, count_to(3)));
  for (const auto& stream : streams) EXPECT_EQ(read_all(*stream, true).at(0), first(3));
}

TEST(EngineHost, RefusesAllIfOneIsRefused) {
  EngineHost host(std::make_unique<CountingEngine>());
  try {
    host.submit({count_to(1000000), Request{}});
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "request 1 of 2: prompt is empty");
  }
  while (host.metrics().num_running > 0) std::this_thread::yield();
}

TEST(EngineHost, CancelsWhatRunsAndWhatWaits) {
  EngineHost host(std::make_unique<CountingEngine>(1));
  const auto streams = host.submit({count_to(1 << 30), count_to(5)});
  host.cancel(streams[1]);
  std::optional<SequenceOutput> output = streams[1]->take(-1, true);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->finish, FinishReason::cancelled);
  host.cancel(streams[0]);
  output = streams[0]->take(-1, true);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->finish, FinishReason::cancelled);
  host.cancel(streams[0]);  // ignored: it has ended
}

TEST(EngineHost, AnExceptionOutsideAStepEndsRequestsWithItsText) {
  auto engine = std::make_unique<CountingEngine>();
  engine->fail_at(3);
  EngineHost host(std::move(engine));
  const auto stream = host.submit({count_to(10)}).front();
  std::optional<SequenceOutput> output = stream->take(-1, true);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->finish, FinishReason::error);
  EXPECT_EQ(output->error, "the step broke");
}

TEST(EngineHost, EndsWithRequestsUnderWay) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<OutputStream>> streams;
    {
      EngineHost host(std::make_unique<CountingEngine>(2));
      streams = host.submit(std::vector<Request>(4, count_to(1 << 30)));
      if (round % 2 == 0) streams[0]->take(-1, false);
    }
    for (const auto& stream : streams) {
      std::optional<SequenceOutput> output = stream->take(0, true);
      ASSERT_TRUE(output);
      EXPECT_EQ(output->finish, FinishReason::cancelled);
    }
  }
}

}  // namespace
}  // namespace tessera::testing
