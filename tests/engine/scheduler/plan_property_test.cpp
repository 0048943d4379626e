// Properties of the plan over random histories, against a pool simulated page by page.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "engine/plan.h"

namespace tessera::engine {
namespace {

// A sequence of the simulation. Every beam has its own list of pages.
struct Actor {
  int64_t num_prompt = 0;
  int64_t num_known = 0;
  int64_t num_computed = 0;
  int64_t num_final = 0;                    // known tokens at which it ends
  std::vector<std::vector<int32_t>> lists;  // one; several once beams have forked
  std::vector<int32_t> all_pages;           // the lists joined, as the plan wants them
  int32_t num_rows = 1;
  bool is_beam = false;
  bool wants_logits = false;
  int32_t priority = 0;
  uint64_t arrival = 0;
};

// Carries plans out and counts who holds each page, to check that the promised pages exist.
class Simulation {
 public:
  Simulation(uint64_t seed, const PlanLimits& limits, int64_t num_pages)
      : random_(seed), limits_(limits), holds_(static_cast<size_t>(num_pages), 0) {}

  int64_t uniform(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  void arrive() {
    auto actor = std::make_unique<Actor>();
    const auto num_pages = static_cast<int64_t>(holds_.size());
    const int64_t most = num_pages * limits_.page_size;
    actor->is_beam = uniform(0, 5) == 0;
    const bool has_siblings = !actor->is_beam && uniform(0, 3) == 0;
    if (actor->is_beam || has_siblings) {
      const int64_t most_rows =
          std::min({limits_.max_batch, limits_.max_tokens, limits_.max_logits});
      actor->num_rows = static_cast<int32_t>(uniform(1, most_rows));
    }
    const int64_t longest = actor->is_beam ? most / (actor->num_rows + 1) : most;
    if (longest < 2) return;
    actor->num_final = uniform(2, longest);
    actor->num_prompt = actor->num_known = uniform(1, actor->num_final - 1);
    actor->wants_logits = uniform(0, 4) == 0;
    actor->priority = static_cast<int32_t>(uniform(0, 2));
    actor->arrival = (next_arrival_++) * 64;
    waiting_.push_back(std::move(actor));
  }

  bool is_idle() const { return running_.empty() && waiting_.empty(); }

  void step() {
    const std::vector<PlanEntry> running = entries(running_, true);
    const std::vector<PlanEntry> waiting = entries(waiting_, false);
    limits_.num_available_pages = num_free();
    const Plan result = plan(running, waiting, limits_);
    expect_same(result, plan(running, waiting, limits_));
    check_limits(running, waiting, result);
    check_order(running, waiting, result);
    apply(result);
  }

  int64_t num_preempted() const { return num_preempted_; }
  int64_t num_free() const { return std::count(holds_.begin(), holds_.end(), 0); }

 private:
  using Actors = std::vector<std::unique_ptr<Actor>>;

  int64_t pages_of(int64_t tokens) const {
    return (tokens + limits_.page_size - 1) / limits_.page_size;
  }

  std::vector<PlanEntry> entries(const Actors& actors, bool is_running) {
    std::vector<PlanEntry> list;
    for (const auto& actor : actors) {
      PlanEntry entry{.num_known = actor->num_known,
                      .num_prompt = actor->num_prompt,
                      .num_computed = actor->num_computed,
                      .first_logit = actor->wants_logits ? 0 : actor->num_known - 1,
                      .num_rows = actor->num_rows,
                      .priority = actor->priority,
                      .arrival = actor->arrival};
      if (is_running) describe_pages(*actor, entry);
      list.push_back(entry);
    }
    return list;
  }

  void describe_pages(Actor& actor, PlanEntry& entry) {
    actor.all_pages.clear();
    for (const auto& list : actor.lists) {
      actor.all_pages.insert(actor.all_pages.end(), list.begin(), list.end());
    }
    entry.pages = actor.all_pages;
    const bool opens_page = actor.num_computed % limits_.page_size == 0;
    if (!actor.is_beam || actor.num_known == actor.num_prompt) {
      entry.copies_last_page = !opens_page && !actor.lists[0].empty() &&
                               holds_[static_cast<size_t>(actor.lists[0].back())] > 1;
      return;
    }
    entry.num_beams = static_cast<int32_t>(actor.lists.size());
    std::vector<int32_t> last;
    for (const auto& list : actor.lists) last.push_back(list.back());
    std::sort(last.begin(), last.end());
    const auto num_distinct = std::unique(last.begin(), last.end()) - last.begin();
    entry.num_beam_pages = opens_page ? entry.num_beams : entry.num_beams - num_distinct;
  }

  static void expect_same(const Plan& a, const Plan& b) {
    const auto same = [](const PlannedChunk& x, const PlannedChunk& y) {
      return x.entry == y.entry && x.num_tokens == y.num_tokens;
    };
    EXPECT_EQ(a.preempt, b.preempt);
    EXPECT_TRUE(std::ranges::equal(a.running, b.running, same));
    EXPECT_TRUE(std::ranges::equal(a.admit, b.admit, same));
  }

  void check_limits(const std::vector<PlanEntry>& running, const std::vector<PlanEntry>& waiting,
                    const Plan& result) {
    int64_t tokens = 0, logits = 0, rows = 0;
    const auto add = [&](const PlanEntry& entry, int64_t count) {
      ASSERT_GT(count, 0);
      tokens += count;
      if (entry.num_beams > 0) {
        ASSERT_EQ(count, entry.num_beams);
        logits += count;
        return;
      }
      ASSERT_LE(entry.num_computed + count, entry.num_known);
      ASSERT_TRUE(count == 1 || entry.num_computed + count <= entry.num_prompt)
          << "behind the prompt there are no chunks";
      logits += std::max<int64_t>(
          0, entry.num_computed + count - std::max(entry.num_computed, entry.first_logit));
    };
    for (const PlanEntry& entry : running) rows += entry.num_rows;
    for (const PlannedChunk& chunk : result.running) {
      add(running[static_cast<size_t>(chunk.entry)], chunk.num_tokens);
    }
    for (const PlannedChunk& chunk : result.admit) {
      add(waiting[static_cast<size_t>(chunk.entry)], chunk.num_tokens);
      rows += waiting[static_cast<size_t>(chunk.entry)].num_rows;
    }
    EXPECT_LE(tokens, limits_.max_tokens);
    EXPECT_LE(logits, limits_.max_logits);
    EXPECT_LE(rows, limits_.max_batch);
    EXPECT_TRUE(tokens > 0 || (running.empty() && waiting.empty())) << "something fits";
  }

  static bool goes_before(const PlanEntry& a, const PlanEntry& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.arrival < b.arrival;
  }

  void check_order(const std::vector<PlanEntry>& running, const std::vector<PlanEntry>& waiting,
                   const Plan& result) {
    std::vector<bool> is_served(running.size()), is_preempted(running.size());
    for (const PlannedChunk& chunk : result.running) {
      is_served[static_cast<size_t>(chunk.entry)] = true;
    }
    for (const int64_t index : result.preempt) is_preempted[static_cast<size_t>(index)] = true;
    for (size_t i = 0; i < running.size(); ++i) {
      EXPECT_FALSE(is_served[i] && is_preempted[i]);
      bool is_first = true;
      for (size_t j = 0; j < running.size(); ++j) {
        is_first = is_first && !(j != i && goes_before(running[j], running[i]));
        // Whoever is preempted is after everyone who is not.
        EXPECT_FALSE(is_preempted[i] && !is_preempted[j] && goes_before(running[i], running[j]));
      }
      EXPECT_TRUE(is_served[i] || !is_first) << "the first in order makes progress";
    }
    EXPECT_TRUE(result.preempt.empty() || result.admit.empty());
    std::vector<bool> is_admitted(waiting.size());
    for (const PlannedChunk& chunk : result.admit) {
      is_admitted[static_cast<size_t>(chunk.entry)] = true;
    }
    for (size_t i = 0; i < waiting.size(); ++i) {
      for (size_t j = 0; j < waiting.size(); ++j) {
        EXPECT_FALSE(is_admitted[i] && !is_admitted[j] && goes_before(waiting[j], waiting[i]));
      }
    }
  }

  void take_page(std::vector<int32_t>& list) {
    const auto free = std::find(holds_.begin(), holds_.end(), 0);
    ASSERT_NE(free, holds_.end()) << "the plan promised more pages than there are";
    ++*free;
    list.push_back(static_cast<int32_t>(free - holds_.begin()));
  }

  void grow(std::vector<int32_t>& list, int64_t from, int64_t to) {
    if (from % limits_.page_size != 0 && holds_[static_cast<size_t>(list.back())] > 1) {
      const int32_t shared = list.back();
      list.pop_back();
      take_page(list);
      --holds_[static_cast<size_t>(shared)];
    }
    while (static_cast<int64_t>(list.size()) < pages_of(to)) {
      ASSERT_NO_FATAL_FAILURE(take_page(list));
    }
  }

  void release(Actor& actor) {
    for (const auto& list : actor.lists) {
      for (const int32_t page : list) --holds_[static_cast<size_t>(page)];
    }
    actor.lists.clear();
  }

  std::vector<int32_t> fork(const std::vector<int32_t>& list) {
    for (const int32_t page : list) ++holds_[static_cast<size_t>(page)];
    return list;
  }

  void compute(Actor& actor, int64_t count) {
    const bool is_search = actor.is_beam && actor.num_known > actor.num_prompt;
    const int64_t advance = is_search ? 1 : count;
    for (auto& list : actor.lists) {
      ASSERT_NO_FATAL_FAILURE(grow(list, actor.num_computed, actor.num_computed + advance));
    }
    actor.num_computed += advance;
    if (actor.num_computed < actor.num_known) return;
    const bool is_prompt_done = actor.num_known == actor.num_prompt;
    ++actor.num_known;
    if (actor.is_beam) return branch(actor);
    if (!is_prompt_done) return;
    while (actor.num_rows > 1) {  // siblings begin
      auto sibling = std::make_unique<Actor>(actor);
      sibling->num_rows = 1;
      sibling->arrival += static_cast<uint64_t>(--actor.num_rows);
      sibling->lists = {fork(actor.lists[0])};
      born_.push_back(std::move(sibling));
    }
  }

  // Every beam's children come from random parents.
  void branch(Actor& actor) {
    std::vector<std::vector<int32_t>> next;
    for (int32_t i = 0; i < actor.num_rows; ++i) {
      const auto parent = uniform(0, static_cast<int64_t>(actor.lists.size()) - 1);
      next.push_back(fork(actor.lists[static_cast<size_t>(parent)]));
    }
    release(actor);
    actor.lists = std::move(next);
  }

  void apply(const Plan& result) {
    for (const int64_t index : result.preempt) {
      Actor& actor = *running_[static_cast<size_t>(index)];
      release(actor);
      actor.num_computed = 0;
      if (actor.is_beam) actor.num_known = actor.num_prompt;
      ++num_preempted_;
    }
    for (const PlannedChunk& chunk : result.running) {
      compute(*running_[static_cast<size_t>(chunk.entry)], chunk.num_tokens);
    }
    for (const PlannedChunk& chunk : result.admit) {
      Actor& actor = *waiting_[static_cast<size_t>(chunk.entry)];
      actor.lists = {{}};
      compute(actor, chunk.num_tokens);
    }
    for (const int64_t index : result.preempt) {
      waiting_.push_back(std::move(running_[static_cast<size_t>(index)]));
    }
    for (const PlannedChunk& chunk : result.admit) {
      running_.push_back(std::move(waiting_[static_cast<size_t>(chunk.entry)]));
    }
    for (auto& actor : born_) running_.push_back(std::move(actor));
    born_.clear();
    std::erase(waiting_, nullptr);
    std::erase(running_, nullptr);
    for (auto& actor : running_) {
      if (actor->num_known < actor->num_final) continue;
      release(*actor);
      actor.reset();
    }
    std::erase(running_, nullptr);
  }

  std::mt19937_64 random_;
  PlanLimits limits_;
  std::vector<int32_t> holds_;  // [num_pages]
  Actors running_, waiting_, born_;
  uint64_t next_arrival_ = 0;
  int64_t num_preempted_ = 0;
};

TEST(PlanProperty, HoldsOverRandomHistories) {
  int64_t num_preempted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    const PlanLimits limits{.max_tokens = pick(1, 24),
                            .max_batch = pick(1, 6),
                            .max_logits = pick(1, 8),
                            .page_size = pick(1, 5)};
    const int64_t num_pages = pick(2, 24);
    Simulation simulation(seed, limits, num_pages);
    for (int i = 0; i < 60; ++i) {
      if (simulation.uniform(0, 2) == 0) simulation.arrive();
      simulation.step();
      if (::testing::Test::HasFailure()) return;
    }
    int64_t num_steps = 0;
    while (!simulation.is_idle()) {  // nobody starves: with no arrivals all come to their end
      simulation.step();
      ASSERT_LT(++num_steps, 40000);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(simulation.num_free(), num_pages);
    num_preempted += simulation.num_preempted();
  }
  EXPECT_GT(num_preempted, 100) << "the histories must be tight enough to preempt";
}

}  // namespace
}  // namespace tessera::engine
