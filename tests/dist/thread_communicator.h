// Ranks as threads of one process, for tests: they exchange data through a shared table.
// SPDX-License-Identifier: MIT
#pragma once

#include <barrier>
#include <cstddef>
#include <thread>
#include <vector>

#include "dist/communicator.h"
#include "tessera/ops/copy.h"

namespace tessera::testing {

class ThreadWorld {
 public:
  explicit ThreadWorld(int size) : views(static_cast<size_t>(size)), barrier(size) {}
  std::vector<TensorView> views;  // what each rank brings to the call in progress
  std::barrier<> barrier;
};

class ThreadCommunicator final : public dist::Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_.views.size()); }

  void all_reduce_sum(const TensorView& values, const Context&) override {
    share(values);
    // Goes over both axes, so that rows may have any stride.
    std::vector<float> sums;
    for (int64_t row = 0; row < values.size(0); ++row) {
      for (int64_t col = 0; col < values.size(1); ++col) {
        float sum = 0.0f;
        for (const TensorView& view : world_.views) {
          sum += load_as_float(view, std::vector<int64_t>{row, col});
        }
        sums.push_back(sum);
      }
    }
    world_.barrier.arrive_and_wait();  // everyone has read before anyone writes
    size_t next = 0;
    for (int64_t row = 0; row < values.size(0); ++row) {
      for (int64_t col = 0; col < values.size(1); ++col) {
        store_from_float(values, std::vector<int64_t>{row, col}, sums[next++]);
      }
    }
    world_.barrier.arrive_and_wait();
  }

  void all_gather_columns(const TensorView& part, const TensorView& all,
                          const Context& ctx) override {
    share(part);
    int64_t begin = 0;
    for (const TensorView& view : world_.views) {
      copy({.x = view, .out = all.slice(1, begin, begin + view.size(1))}, ctx);
      begin += view.size(1);
    }
    world_.barrier.arrive_and_wait();  // nobody changes a part that is still being read
  }

 private:
  void share(const TensorView& view) {
    world_.views[static_cast<size_t>(rank_)] = view;
    world_.barrier.arrive_and_wait();
  }

  ThreadWorld& world_;
  int rank_;
};

// Runs body(communicator) for every rank, each on its own thread.
template <class Body>
void run_ranks(int size, Body&& body) {
  ThreadWorld world(size);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&world, &body, rank] {
      ThreadCommunicator communicator(world, rank);
      body(communicator);
    });
  }
}

}  // namespace tessera::testing
