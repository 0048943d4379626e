// The thread pool behind parallel loops.
// SPDX-License-Identifier: MIT
//
// A caller publishes its loop in a place that the workers watch, takes runs of items itself, closes
// the place when none is left, and waits until all workers have left it. `Place::state` counts the
// workers inside, so a late worker finds the place closed and never touches a loop that has ended.
//
// A waiting thread first spins, for longer than the gaps between the operations of a step, and then
// sleeps in the kernel, so that an idle thread leaves its CPU to other programs.
#include "core/parallel.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <new>

#include "core/cpu_count.h"

namespace tessera {

// A loop in progress, on its caller's stack.
struct Loop {
  int64_t num_items;
  int64_t run_length;
  const void* body;
  detail::TakeShare take_share;

  std::atomic<int64_t> next_item = 0;
  // The first item of the lowest run that threw, or -1 for a thread that threw before it took one.
  std::atomic<int64_t> failed_at = std::numeric_limits<int64_t>::max();
  std::mutex failure_mutex = {};
  std::exception_ptr failure = {};

  bool take_run(int64_t& begin, int64_t& end) {
    begin = next_item.fetch_add(run_length, std::memory_order_relaxed);
    end = std::min(begin + run_length, num_items);
    // Runs are taken in ascending order, so all runs below a failure were taken before it.
    return begin < num_items && begin < failed_at.load(std::memory_order_relaxed);
  }

  void take_part() noexcept {
    Share share(*this);
    try {
      take_share(body, share);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (share.begin() >= failed_at.load(std::memory_order_relaxed)) return;
      failed_at.store(share.begin(), std::memory_order_relaxed);
      failure = std::current_exception();
    }
  }
};

bool Share::next() {
  if (loop_ != nullptr) return loop_->take_run(begin_, end_);
  begin_ = end_;
  end_ = std::min(begin_ + run_length_, num_items_);
  return begin_ < end_;
}

namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxLoops = 8;  // at the same time; further callers run their loops alone
constexpr size_t kLine = 64;
constexpr uint32_t kOpen = 1u << 31;
constexpr uint32_t kCallerSleeps = 1u << 30;  // the bits below count the workers inside

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// How long a thread spins before it sleeps, if no other program wants its CPU. Otherwise it sleeps
// at once: the system gives each thread a fair share of CPU time, and spinning would use up ours.
constexpr microseconds kSpin{100};
// How often a worker checks how long it has waited for a CPU. If it waited for more than a quarter
// of the time it was ready to run, no thread spins for the next kCrowdedFor.
constexpr milliseconds kWatchEvery{60};
constexpr int kCrowdedShare = 4;
constexpr milliseconds kCrowdedFor{1000};

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// Returns when woken, when `word` is no longer `value`, or spuriously.
void sleep_while(const std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void wake(const std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct alignas(kLine) Place {
  std::atomic<uint32_t> state = 0;
  std::atomic<bool> is_taken = false;
  int max_workers = 0;  // workers with a higher index do not take part
  Loop* loop = nullptr;
};

// Never destroyed: workers may still use it while the process ends.
struct Pool {
  alignas(kLine) std::atomic<uint32_t> news = 0;  // changes when a place is opened
  std::atomic<int> num_sleeping = 0;
  std::atomic<Clock::rep> crowded_until = 0;        // no spinning before this time
  alignas(kLine) std::atomic<int> num_threads = 0;  // 0: not decided yet
  std::atomic<int> num_workers = 0;
  std::atomic<int> num_refused = 0;  // workers that could not be started
  std::mutex start_mutex;
  Place places[kMaxLoops];
};
constinit Pool pool;
constinit thread_local bool is_in_loop = false;

// Spins until is_done(), for kSpin at most. Returns whether it was done.
template <class IsDone>
bool spin_until(IsDone&& is_done) {
  constexpr int kPausesPerLook = 16;
  const Clock::time_point begin = Clock::now();
  if (begin.time_since_epoch().count() < pool.crowded_until.load()) return is_done();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (is_done()) return true;
      pause_cpu();
    }
  } while (Clock::now() - begin < kSpin);
  return false;
}

// Detects that other programs compete for a worker's CPU.
class CrowdWatch {
 public:
  void look() {
    const Clock::time_point now = Clock::now();
    if (now < next_) return;
    next_ = now + kWatchEvery;
    const Times times = times_of_thread();
    const int64_t ran = times.ran - before_.ran, waited = times.waited - before_.waited;
    before_ = times;
    if (waited * kCrowdedShare > ran + waited && nanoseconds(waited) * 10 > kWatchEvery) {
      pool.crowded_until = (now + kCrowdedFor).time_since_epoch().count();
    }
  }

 private:
  struct Times {
    int64_t ran = 0, waited = 0;  // nanoseconds on a CPU, and ready to run without one
  };

  // Zeros on a system without schedstat.
  static Times times_of_thread() {
    Times times;
    char text[128];
    const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (file < 0) return times;
    const ssize_t length = read(file, text, sizeof text);
    ::close(file);
    if (length <= 0) return times;
    const char* end = text + length;
    const char* space = std::from_chars(text, end, times.ran).ptr;
    if (space < end) std::from_chars(space + 1, end, times.waited);
    return times;
  }

  Clock::time_point next_ = Clock::now() + kWatchEvery;
  Times before_ = times_of_thread();
};

bool enter(Place& place) {
  uint32_t state = place.state.load(std::memory_order_relaxed);
  while ((state & kOpen) != 0) {
    if (place.state.compare_exchange_weak(state, state + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void leave(Place& place) {
  const uint32_t left = place.state.fetch_sub(1, std::memory_order_release) - 1;
  if (left == kCallerSleeps) wake(place.state, 1);
}

// Takes part in every loop that is open, then waits for the next.
void* work(void* index_pointer) {
  const int index = static_cast<int>(reinterpret_cast<intptr_t>(index_pointer));
  is_in_loop = true;
  CrowdWatch watch;
  for (;;) {
    const uint32_t seen = pool.news.load();
    for (Place& place : pool.places) {
      if (!enter(place)) continue;
      if (index < place.max_workers) place.loop->take_part();
      leave(place);
    }
    watch.look();
    if (spin_until([&] { return pool.news.load(std::memory_order_relaxed) != seen; })) continue;
    // Counted before it sleeps, so that a caller who opens a place now knows to wake it.
    pool.num_sleeping.fetch_add(1);
    sleep_while(pool.news, seen);
    pool.num_sleeping.fetch_sub(1);
  }
}

// A forked child has no workers, and locks they held in the parent would never be released.
void forget_workers() {
  new (&pool) Pool;
  pool.num_threads = 1;
}

// Registered before the first worker starts. Fails only if there is no memory.
const int fork_handler_status = pthread_atfork(nullptr, nullptr, forget_workers);

// Workers block all signals but those a thread causes itself, so that the program's own threads get
// them.
bool start_worker(int index) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&blocked, own);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int status =
      pthread_create(&thread, nullptr, work, reinterpret_cast<void*>(static_cast<intptr_t>(index)));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (status == 0) pthread_detach(thread);
  return status == 0;
}

// Starts workers until there are `wanted`. If the system refuses, loops run on those there are.
void start_workers(int wanted) {
  if (pool.num_workers + pool.num_refused >= wanted || fork_handler_status != 0) return;
  const std::lock_guard lock(pool.start_mutex);
  while (pool.num_workers + pool.num_refused < wanted) {
    if (!start_worker(pool.num_workers)) {
      pool.num_refused = wanted - pool.num_workers;
      return;
    }
    ++pool.num_workers;
  }
}

Place* take_place() {
  for (Place& place : pool.places) {
    if (!place.is_taken.load(std::memory_order_relaxed) &&
        !place.is_taken.exchange(true, std::memory_order_acquire)) {
      return &place;
    }
  }
  return nullptr;
}

void open(Place& place, Loop& loop, int64_t useful_workers) {
  place.loop = &loop;
  place.max_workers = pool.num_threads - 1;
  place.state.store(kOpen, std::memory_order_release);
  pool.news.fetch_add(1);
  const int sleeping = pool.num_sleeping.load();
  if (sleeping > 0) {
    // Workers beyond max_workers may be the ones that wake, so wake as many more.
    const int64_t idle = std::max(0, pool.num_workers - place.max_workers);
    wake(pool.news, static_cast<int>(std::min<int64_t>(sleeping, useful_workers + idle)));
  }
}

// Returns when all workers have left.
void close(Place& place) {
  uint32_t inside = place.state.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  const auto is_empty = [&] { return place.state.load(std::memory_order_acquire) == 0; };
  if (inside > 0 && !spin_until(is_empty)) {
    inside = place.state.fetch_or(kCallerSleeps, std::memory_order_acquire) | kCallerSleeps;
    while (inside != kCallerSleeps) {
      sleep_while(place.state, inside);
      inside = place.state.load(std::memory_order_acquire);
    }
    place.state.store(0, std::memory_order_relaxed);
  }
  place.is_taken.store(false, std::memory_order_release);
}

// A count from the environment, or 0. OpenMP's "4,2" means 4 threads, and 2 in nested loops.
int threads_from(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (end == text || (*end != '\0' && *end != ',') || count <= 0) return 0;
  return static_cast<int>(std::min<long>(count, kMaxThreads));
}

}  // namespace

int num_threads() {
  const int known = pool.num_threads.load(std::memory_order_relaxed);
  if (known > 0) return known;
  int count = threads_from("TESSERA_THREADS");
  if (count == 0) count = threads_from("OMP_NUM_THREADS");
  if (count == 0) count = std::min(usable_cpus(), kMaxThreads);
  int undecided = 0;
  pool.num_threads.compare_exchange_strong(undecided, count);
  return undecided == 0 ? count : undecided;
}

void set_num_threads(int count) {
  pool.num_threads = std::clamp(count, 1, kMaxThreads);
  pool.num_refused = 0;
}

void detail::run_loop(int64_t num_items, int64_t run_length, const void* body,
                      TakeShare take_share) {
  const int64_t num_runs = (num_items + run_length - 1) / run_length;
  const int64_t useful_workers = std::min<int64_t>(num_runs, num_threads()) - 1;
  Place* place = nullptr;
  if (useful_workers > 0 && !is_in_loop) {
    start_workers(num_threads() - 1);
    if (pool.num_workers > 0) place = take_place();
  }
  if (place == nullptr) {
    Share all(num_items, run_length);
    take_share(body, all);
    return;
  }
  Loop loop{num_items, run_length, body, take_share};
  open(*place, loop, useful_workers);
  is_in_loop = true;
  loop.take_part();
  is_in_loop = false;
  close(*place);
  if (loop.failure) std::rethrow_exception(loop.failure);
}

}  // namespace tessera
