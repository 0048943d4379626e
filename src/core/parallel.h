// Loops over all threads of the CPU: the only way to run host code in parallel.
// SPDX-License-Identifier: MIT
//
//   parallel_for(num_rows, num_cols, [&](int64_t row) { ... });
//
// The calling thread takes part, and free threads of a pool join it. Items are handed out in
// ascending order, a few at a time. The caller waits only for threads that hold items, never for
// one that the operating system has not scheduled yet. An item's result must not depend on the
// thread that computes it.
//
// An exception is rethrown in the caller. If several items throw, the lowest item's exception wins,
// whatever the number of threads; items above it are skipped. A loop inside a loop runs on its own
// thread alone. Any number of threads may run loops at once. A body must not fork.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera {

// How many threads a loop may use, including the caller. The default is TESSERA_THREADS, or else
// OMP_NUM_THREADS, or else the CPUs this process may use. After a fork it is 1 in the child, which
// has none of the pool's threads; setting it there starts new ones.
int num_threads();
void set_num_threads(int count);  // for the whole process; at least 1

// One thread's share of a loop: runs of consecutive items, taken until none is left.
class Share {
 public:
  // The share of a thread that runs a loop alone.
  Share(int64_t num_items, int64_t run_length) : num_items_(num_items), run_length_(run_length) {}

  // Takes a run of at least one item; false if none is left.
  bool next();
  int64_t begin() const { return begin_; }  // of the current run
  int64_t end() const { return end_; }

 private:
  friend struct Loop;
  explicit Share(struct Loop& loop) : loop_(&loop) {}

  struct Loop* loop_ = nullptr;
  int64_t num_items_ = 0;  // this and run_length_ are used if loop_ is null
  int64_t run_length_ = 0;
  int64_t begin_ = -1;  // no run yet
  int64_t end_ = 0;
};

namespace detail {

using TakeShare = void (*)(const void* body, Share& share);
void run_loop(int64_t num_items, int64_t run_length, const void* body, TakeShare take_share);

}  // namespace detail

// Calls body(share) once on every thread that joins; the body takes runs of `run_length` items
// until share.next() is false. For loops whose threads keep state from item to item.
template <class Body>
void parallel_shares(int64_t num_items, int64_t run_length, Body&& body) {
  if (num_items <= run_length) {
    Share all(num_items, run_length);
    body(all);
    return;
  }
  using Object = std::remove_reference_t<Body>;
  detail::run_loop(num_items, run_length, std::addressof(body),
                   [](const void* object, Share& share) {
                     (*const_cast<Object*>(static_cast<const Object*>(object)))(share);
                   });
}

// Calls body(task) for every task in [0, num_tasks), each on the next free thread. A task should
// take at least some microseconds, which is what waking a thread costs.
template <class Body>
void parallel_tasks(int64_t num_tasks, Body&& body) {
  parallel_shares(num_tasks, 1, [&](Share& share) {
    while (share.next()) body(share.begin());
  });
}

// Loops with less work than this stay on one thread: waking the others costs some microseconds,
// about as much as this many elements.
inline constexpr int64_t kParallelElements = 16 * 1024;
// Several runs per thread, so that one slow thread does not keep the others waiting.
inline constexpr int64_t kRunsPerThread = 4;
// Each run long enough that the cost of taking it does not matter.
inline constexpr int64_t kRunElements = 2 * 1024;

// How many items a thread takes at once; all of them if the work is too small to share.
inline int64_t items_in_run(int64_t num_items, int64_t elements_per_item) {
  if (num_items <= 1 || num_items * elements_per_item <= kParallelElements) {
    return std::max<int64_t>(1, num_items);
  }
  const int64_t runs = kRunsPerThread * num_threads();
  return std::max({int64_t{1}, kRunElements / elements_per_item, (num_items + runs - 1) / runs});
}

// Calls body(item) for every item in [0, num_items), on this thread alone if the work is too small
// to share.
template <class Body>
void parallel_for(int64_t num_items, int64_t elements_per_item, Body&& body) {
  parallel_shares(num_items, items_in_run(num_items, elements_per_item), [&](Share& share) {
    while (share.next()) {
      for (int64_t item = share.begin(); item < share.end(); ++item) body(item);
    }
  });
}

}  // namespace tessera
