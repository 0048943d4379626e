// Runs the blocks of a launch: warps take turns in a random order and of random length, so that a
// kernel which works by luck of timing fails sooner or later.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "tests/emulator/launch.h"

namespace tessera::emulator {
namespace {

constexpr int kMeanQuantum = 200;                      // instructions of a turn
constexpr uint64_t kMaxInstructions = 20'000'000'000;  // of warps, in a launch
// Rounds in which no warp gets on before the launch counts as stuck: more than any copy takes.
constexpr int kStuckRounds = 200;
constexpr uint32_t kUnwritten = 0x7fc0dead;  // what shared memory begins with: a quiet NaN
constexpr int kUnwrittenRegister = 0xcd;
constexpr size_t kLargestPoisoned = 1 << 20;  // a larger register file takes too long to fill

// The register files of a launch's warps, used again by later blocks.
class RegisterFiles {
 public:
  explicit RegisterFiles(size_t bytes) : bytes_(bytes) {}
  ~RegisterFiles() {
    for (char* file : all_) ::operator delete[](file, kAlign);
  }
  char* take() {
    if (free_.empty()) {
      all_.push_back(static_cast<char*>(::operator new[](bytes_, kAlign)));
      free_.push_back(all_.back());
    }
    char* const file = free_.back();
    free_.pop_back();
    if (bytes_ < kLargestPoisoned) std::memset(file, kUnwrittenRegister, bytes_);
    return file;
  }
  void give_back(char* file) { free_.push_back(file); }

 private:
  static constexpr std::align_val_t kAlign{64};
  const size_t bytes_;
  std::vector<char*> all_, free_;
};

class Scheduler {
 public:
  explicit Scheduler(Launch& launch) : launch_(launch), files_(launch.kernel->register_bytes) {
    for (size_t i = 0; i < 3; ++i) clusters_[i] = launch.grid[i] / launch.cluster[i];
    num_clusters_ = volume(clusters_);
    if (launch.shuffles_blocks) {
      order_.resize(num_clusters_);
      std::iota(order_.begin(), order_.end(), 0);
      std::shuffle(order_.begin(), order_.end(), launch.random);
      num_resident_ = 1 + launch.random() % 4;
    }
  }

  void run() {
    while (next_ < num_clusters_ || !resident_.empty()) {
      admit();
      const bool has_progressed = run_warps() | run_copies();
      num_idle_rounds_ = has_progressed ? 0 : num_idle_rounds_ + 1;
      if (num_idle_rounds_ > kStuckRounds) {
        // Blocks may wait for blocks that have not begun: a device would run them beside these.
        if (next_ == num_clusters_) report_deadlock();
        ++num_resident_;
        num_idle_rounds_ = 0;
      }
      if (launch_.num_executed > kMaxInstructions) {
        throw Fault(FaultKind::timeout, "kernel " + launch_.kernel->name + " has executed " +
                                            std::to_string(launch_.num_executed) +
                                            " instructions and does not end");
      }
      retire();
    }
  }

 private:
  struct Resident {
    std::unique_ptr<Cluster> cluster;
    std::vector<char*> files = {};
  };

  void admit() {
    while (resident_.size() < num_resident_ && next_ < num_clusters_) {
      add_cluster(order_.empty() ? next_ : order_[next_]);
      ++next_;
    }
  }

  void add_cluster(uint64_t index) {
    Resident resident{.cluster = std::make_unique<Cluster>()};
    Cluster& cluster = *resident.cluster;
    cluster.id = {static_cast<uint32_t>(index % clusters_[0]),
                  static_cast<uint32_t>(index / clusters_[0] % clusters_[1]),
                  static_cast<uint32_t>(index / clusters_[0] / clusters_[1])};
    cluster.blocks.reserve(volume(launch_.cluster));
    for (uint32_t rank = 0; rank < volume(launch_.cluster); ++rank) {
      add_block(resident, rank);
    }
    resident_.push_back(std::move(resident));
    is_order_known_ = false;
  }

  void add_block(Resident& resident, uint32_t rank) {
    Cluster& cluster = *resident.cluster;
    auto block = std::make_unique<Block>();
    block->rank = rank;
    block->cluster = &cluster;
    const Extent& extent = launch_.cluster;
    const Extent within{rank % extent[0], rank / extent[0] % extent[1],
                        rank / extent[0] / extent[1]};
    for (size_t i = 0; i < 3; ++i) block->id[i] = cluster.id[i] * extent[i] + within[i];
    const auto static_bytes = static_cast<size_t>(launch_.kernel->static_shared_bytes);
    block->shared.resize(static_bytes + launch_.dynamic_shared_bytes);
    for (size_t at = 0; at + 4 <= block->shared.size(); at += 4) {
      std::memcpy(block->shared.data() + at, &kUnwritten, 4);
    }
    const int num_warps = static_cast<int>((volume(launch_.block) + kWarpLanes - 1) / kWarpLanes);
    block->num_live_warps = num_warps;
    cluster.num_live_warps += num_warps;
    for (int warp = 0; warp < num_warps; ++warp) {
      resident.files.push_back(files_.take());
      block->warps.push_back(std::make_unique<Warp>(launch_, *block, warp, resident.files.back()));
    }
    cluster.blocks.push_back(std::move(block));
  }

  bool run_warps() {
    if (!is_order_known_) {
      warps_.clear();
      for (const Resident& resident : resident_) {
        for (const auto& block : resident.cluster->blocks) {
          for (const auto& warp : block->warps) {
            if (!warp->is_done()) warps_.push_back(warp.get());
          }
        }
      }
      is_order_known_ = true;
    }
    std::shuffle(warps_.begin(), warps_.end(), launch_.random);
    bool has_progressed = false;
    for (Warp* warp : warps_) {
      if (warp->is_done() || warp->is_blocked()) continue;
      warp->run(1 + static_cast<int>(launch_.random() % (2 * kMeanQuantum)));
      has_progressed |= !warp->has_only_waited();
      if (warp->is_done()) finish(*warp);
    }
    const bool had_events = launch_.num_events != num_events_seen_;
    num_events_seen_ = launch_.num_events;
    return has_progressed || had_events;
  }

  // Barriers no longer wait for a warp that is done.
  void finish(Warp& warp) {
    --warp.block().num_live_warps;
    --warp.cluster().num_live_warps;
    for (NamedBarrier& barrier : warp.block().barriers) {
      if (barrier.arrived > 0 && warp.block().release_if_full(barrier)) ++launch_.num_events;
    }
    if (warp.cluster().release_if_full()) ++launch_.num_events;
    is_order_known_ = false;
  }

  // True while there are copies under way: they will let a warp go on, or end.
  bool run_copies() {
    bool has_any = false;
    for (const Resident& resident : resident_) {
      std::vector<PendingCopy>& copies = resident.cluster->copies;
      for (size_t i = 0; i < copies.size();) {
        has_any = true;
        if (--copies[i].turns_left > 0) {
          ++i;
          continue;
        }
        const auto run = std::move(copies[i].run);
        copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
        run();
        ++launch_.num_events;
      }
    }
    return has_any;
  }

  void retire() {
    if (is_order_known_) return;  // no warp has finished
    std::erase_if(resident_, [&](Resident& resident) {
      if (resident.cluster->num_live_warps > 0) return false;
      for (const PendingCopy& copy : resident.cluster->copies) copy.run();
      for (char* file : resident.files) files_.give_back(file);
      return true;
    });
  }

  [[noreturn]] void report_deadlock() const {
    constexpr size_t kMostText = 6000;
    std::string text = "kernel " + launch_.kernel->name + " is stuck; its warps wait at:";
    for (const Resident& resident : resident_) {
      for (const auto& block : resident.cluster->blocks) {
        for (const auto& warp : block->warps) {
          if (warp->is_done() || text.size() > kMostText) continue;
          text += "\n  block " + std::to_string(block->id[0]) + "," + std::to_string(block->id[1]) +
                  "," + std::to_string(block->id[2]) + " warp " + std::to_string(warp->index()) +
                  ": " + warp->describe();
        }
      }
    }
    throw Fault(FaultKind::timeout, text);
  }

  Launch& launch_;
  RegisterFiles files_;
  Extent clusters_{};
  uint64_t num_clusters_ = 0;
  uint64_t next_ = 0;            // cluster to begin
  std::vector<uint64_t> order_;  // of clusters; empty: by index
  size_t num_resident_ = 1;
  std::vector<Resident> resident_;
  std::vector<Warp*> warps_;     // those that are not done
  bool is_order_known_ = false;  // whether warps_ is up to date
  int num_idle_rounds_ = 0;
  uint64_t num_events_seen_ = 0;
};

}  // namespace

bool Block::release_if_full(NamedBarrier& barrier) {
  const int wanted = barrier.expected < 0 ? num_live_warps * kWarpLanes : barrier.expected;
  if (barrier.arrived < wanted) return false;
  for (const NamedBarrier::Reader& reader : barrier.readers) {
    const bool value = reader.wants_any ? barrier.any : barrier.all;
    reader.warp->predicate(reader.result) = value ? kAllLanes : 0;
  }
  for (Warp* warp : barrier.waiting) warp->unblock();
  barrier = {};
  return true;
}

bool Cluster::release_if_full() {
  if (num_arrived_warps == 0 || num_arrived_warps < num_live_warps) return false;
  num_arrived_warps = 0;
  ++barrier_phase;
  return true;
}

void run_launch(Launch& launch) { Scheduler(launch).run(); }

}  // namespace tessera::emulator
