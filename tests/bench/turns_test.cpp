// Rows in alternation: whose turn it is, what a drifting clock does to the ratio, and host cost.
// SPDX-License-Identifier: MIT
#include "bench/turns.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "bench/host_cost.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

// A device that only exists as a record: which batch ran, and how much slower each turn has become.
struct FakeGpu {
  std::string turns = {};  // "ba…": a letter a turn
  double slower_by = 0;    // per turn taken: it heats up
  double outlier = 0;      // factor on the whole of the turn numbered below
  size_t outlier_at = 0;
};

class FakeBatch : public Batch {
 public:
  FakeBatch(FakeGpu& gpu, char letter, double batch_us)
      : gpu_(gpu), letter_(letter), batch_us_(batch_us) {}

  std::vector<double> run(int count) override {
    num_runs.push_back(count);
    const bool is_outlier = gpu_.outlier > 0 && gpu_.turns.size() == gpu_.outlier_at;
    const double heat = 1 + gpu_.slower_by * static_cast<double>(gpu_.turns.size());
    gpu_.turns += letter_;
    std::vector<double> times(static_cast<size_t>(count),
                              batch_us_ * heat * (is_outlier ? gpu_.outlier : 1));
    if (letter_ == 'b') times.back() *= 1.5;  // one disturbed replay, which a median passes over
    return times;
  }

  std::vector<int> num_runs;

 private:
  FakeGpu& gpu_;
  char letter_;
  double batch_us_;
};

WarmBatch warm(const std::shared_ptr<Batch>& batch, int64_t num_calls, double batch_us) {
  return {batch, num_calls, batch_us};
}

TEST(Turns, AlternateAfterARoundThatIsNotCountedAndWhoBeginsChanges) {
  FakeGpu gpu;
  const auto ours = std::make_shared<FakeBatch>(gpu, 'a', 1000);
  const auto peer = std::make_shared<FakeBatch>(gpu, 'b', 3000);
  const Turns turns = time_in_turns(warm(ours, 10, 1000), warm(peer, 20, 3000), {.num_rounds = 3});
  EXPECT_EQ(gpu.turns, "baabbaab");                               // a: ours, b: the peer
  EXPECT_EQ(ours->num_runs, (std::vector<int>{30, 30, 30, 30}));  // about 30 ms a turn
  EXPECT_EQ(peer->num_runs, (std::vector<int>{10, 10, 10, 10}));
  EXPECT_EQ(turns.ours.num_batches, 90);  // the first turn is not among them
  EXPECT_EQ(turns.peer.num_batches, 30);
  EXPECT_DOUBLE_EQ(turns.ours.us, 100);  // microseconds of a call, each side by its own batch
  EXPECT_DOUBLE_EQ(turns.peer.us, 150);
  EXPECT_DOUBLE_EQ(turns.ratio, 1.5);
  EXPECT_EQ(turns.ours.batch, ours);
}

TEST(Turns, LastAtLeastOneBatchHoweverLongAndAsManyAsAreAskedFor) {
  FakeGpu gpu;
  const auto ours = std::make_shared<FakeBatch>(gpu, 'a', 240e3);
  const auto peer = std::make_shared<FakeBatch>(gpu, 'b', 240e3);
  const WarmBatch a = warm(ours, 2, 240e3), b = warm(peer, 2, 240e3);
  EXPECT_EQ(time_in_turns(a, b, {.num_rounds = 1}).ours.num_batches, 1);
  EXPECT_EQ(time_in_turns(a, b, {.num_rounds = 2, .num_batches = 5}).ours.num_batches, 10);
}

// Equal rows on a GPU that slows down by a tenth each turn. One after the other they would differ
// by more than half; in a round one of them is a tenth slower, in the next the other.
TEST(Turns, AreFairWhileTheGpuHeatsUp) {
  FakeGpu gpu{.slower_by = 0.1};
  const auto ours = std::make_shared<FakeBatch>(gpu, 'a', 1000);
  const auto peer = std::make_shared<FakeBatch>(gpu, 'b', 1000);
  const Turns turns = time_in_turns(warm(ours, 1, 1000), warm(peer, 1, 1000), {.num_rounds = 8});
  EXPECT_NEAR(turns.ratio, 1.0, 0.02);
  EXPECT_GT(turns.ours.p90, 1.5 * turns.ours.p10);  // and the drift itself is not hidden
}

// The ratio is the median of the rounds' ratios: one round that something else disturbed is one
// vote, where a mean would move.
TEST(Turns, AreNotMovedByOneDisturbedRound) {
  FakeGpu gpu{.outlier = 100, .outlier_at = 4};
  const auto ours = std::make_shared<FakeBatch>(gpu, 'a', 1000);
  const auto peer = std::make_shared<FakeBatch>(gpu, 'b', 1100);
  const Turns turns = time_in_turns(warm(ours, 1, 1000), warm(peer, 1, 1100), {});
  EXPECT_EQ(gpu.turns.size(), 16u);  // 7 rounds, and the first
  EXPECT_DOUBLE_EQ(turns.ratio, 1.1);
}

TEST(Turns, NeedARound) {
  FakeGpu gpu;
  const WarmBatch a = warm(std::make_shared<FakeBatch>(gpu, 'a', 1), 1, 1);
  EXPECT_THROW(time_in_turns(a, a, {.num_rounds = 0}), Error);
  EXPECT_EQ(gpu.turns, "");
}

TEST(HostCost, AsksForFewerCallsWhereTheDeviceIsSlow) {
  EXPECT_EQ(num_host_calls(0), 64);
  EXPECT_EQ(num_host_calls(5), 64);
  EXPECT_EQ(num_host_calls(1000), 20);
  EXPECT_EQ(num_host_calls(12e3), 4);
}

TEST(HostCost, IsTheMedianOfShortBatchesThatWalkTheSets) {
  std::vector<int64_t> sets;
  const Call call = [&](int64_t set, const Context& ctx) {
    EXPECT_TRUE(ctx.row.empty());
    // The first batch, and one stray call later, are slow: neither shows.
    const bool is_slow = sets.size() < 4 || sets.size() == 9;
    sets.push_back(set);
    std::this_thread::sleep_for(std::chrono::milliseconds(is_slow ? 60 : 5));
  };
  const double us = measure_host_us(cpu_device(), 3, call, 12e3);
  EXPECT_EQ(sets.size(), 24u);  // 4 calls in 5 batches, and in one that is not counted
  EXPECT_EQ((std::vector<int64_t>(sets.begin(), sets.begin() + 8)),
            (std::vector<int64_t>{0, 1, 2, 0, 0, 1, 2, 0}));
  EXPECT_GE(us, 5000);
  EXPECT_LT(us, 15000);
}

}  // namespace
}  // namespace tessera::bench
