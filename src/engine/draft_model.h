// A small model of the same vocabulary that guesses how the sequences of a large one go on.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cache/page_cache.h"
#include "engine/draft_source.h"
#include "engine/runner.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// Has a runner, pages and lengths of its own. A call of propose brings the keys of each sequence up
// to its last token, and then goes on from there, all sequences together, one step for each token:
//
//   Catching up  What the target accepted is kept. The rest is computed: the token that followed a
//                rejected guess, a prompt, or all that was generated while no guess was wanted. A
//                call computes at most one step of it, so that a long prompt never stalls the
//                others; a sequence that is still behind gets no draft.
//   Guesses      Drawn with the settings and the random numbers of the target's own draws, greedily
//                if it is greedy: a draft that is the target guesses every token.
//   Rejection    The pages shrink to the tokens that the sequence has.
//   Preemption   Of a sequence in the target leaves its pages here alone. If pages run short, the
//                sequence that has asked for nothing for longest starts over when it asks again.
class DraftModel final : public DraftSource {
 public:
  // `options` are those of the runner, with their defaults filled in.
  DraftModel(std::unique_ptr<Runner> runner, const EngineOptions& options);

  int64_t follow(uint64_t sequence, std::span<const int32_t> tokens) override;
  bool has_guess(uint64_t sequence) const override;
  void propose(std::span<const DraftWish> wishes) override;
  void forget(uint64_t sequence) override;
  bool runs_model() const override { return true; }
  // A draft's hits are known only where there was a draft, so they must pay for more.
  int64_t rows_per_hit() const override { return 2; }
  void add_metrics(EngineMetrics& metrics) const override;
  void check_pages() const override;

 private:
  // Of one sequence: the pages hold its first num_kept tokens and then `guesses`.
  struct State {
    cache::PageList pages;
    int64_t num_kept = 0;
    std::vector<int32_t> guesses;
    std::vector<int32_t> proposed;  // the last draft
    int64_t num_followed = 0;       // tokens of the sequence when it was last seen
    int64_t last_call = 0;          // the last call of propose that it was in
  };
  // A wish being fulfilled.
  struct Task {
    const DraftWish* wish = nullptr;
    State* state = nullptr;
    int64_t most = 0;          // as the pages allow
    int64_t num_computed = 0;  // tokens, with the step being launched
    int32_t draw = -1;         // of the step launched last; -1: none
  };
  // Tokens of a task in the step being built.
  struct Row {
    Task* task = nullptr;
    int64_t start = 0;
    int64_t num_tokens = 0;
    bool draws = false;
  };

  void keep_what_is_right(State& state, const DraftWish& wish);
  bool make_room(State& state, int64_t num_tokens);
  void catch_up(std::span<const DraftWish> wishes);
  void add_rows(Task& task, int64_t num_tokens);
  void go_on(int64_t num_guessed);
  void fill_row(const Row& row);
  void launch();
  void read(std::vector<Task*>& drawing);

  std::unique_ptr<Runner> runner_;
  EngineOptions options_;
  cache::PageCache cache_;
  std::map<uint64_t, State> states_;
  int64_t num_calls_ = 0, num_steps_ = 0;

  // The call in progress. Members only so that their memory is reused.
  std::vector<Task> tasks_;
  std::vector<Row> rows_;
  std::vector<Task*> drawing_[2];  // in the steps in progress, in the order of their draws
  StepInput step_;
  std::vector<cache::PageCopy> copies_;
};

}  // namespace tessera::engine
