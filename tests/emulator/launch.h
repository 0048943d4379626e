// One launch: the grid, the clusters that are resident, their blocks, and what these share.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/emulator/kernel.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {

using Extent = std::array<uint32_t, 3>;

inline uint64_t volume(const Extent& extent) { return uint64_t{extent[0]} * extent[1] * extent[2]; }

struct Launch {
  const Kernel* kernel = nullptr;
  Extent grid{1, 1, 1};  // in blocks
  Extent block{1, 1, 1};
  Extent cluster{1, 1, 1};  // in blocks
  size_t dynamic_shared_bytes = 0;
  const char* parameters = nullptr;

  std::mt19937_64 random;
  bool shuffles_blocks = false;  // several clusters at once, in random order
  bool is_traced = false;
  uint64_t num_executed = 0;  // instructions of warps
  uint64_t num_events = 0;    // what may let a waiting warp go on
};

// A barrier of a block: bar.sync, bar.arrive and bar.red.
struct NamedBarrier {
  struct Reader {  // of bar.red
    Warp* warp;
    uint32_t result;  // offset of the predicate
    bool wants_any;
  };
  int expected = 0;  // threads; negative: all that live
  int arrived = 0;
  bool any = false, all = true;  // of the predicates of bar.red
  std::vector<Warp*> waiting;
  std::vector<Reader> readers;
};

struct Cluster;

struct Block {
  static constexpr int kBarriers = 16;

  Extent id{};
  uint32_t rank = 0;  // in its cluster
  Cluster* cluster = nullptr;
  std::vector<char> shared;
  std::array<NamedBarrier, kBarriers> barriers;
  std::vector<std::unique_ptr<Warp>> warps;
  int num_live_warps = 0;

  // Lets the waiting warps go if enough threads have arrived; false if not.
  bool release_if_full(NamedBarrier& barrier);
};

// An asynchronous copy that has been issued and has not happened. Each happens after a random
// number of turns, or when a wait asks for it; so a kernel that forgets to wait reads old bytes.
struct PendingCopy {
  std::function<void()> run;
  int turns_left = 0;
  const Warp* warp = nullptr;
  int bulk_group = -1;  // of the warp; -1: an mbarrier is told instead
};

struct Cluster {
  Extent id{};
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<PendingCopy> copies;
  int num_live_warps = 0;
  int num_arrived_warps = 0;  // at barrier.cluster
  uint64_t barrier_phase = 0;

  bool release_if_full();
};

// Runs all blocks. Throws Fault.
void run_launch(Launch& launch);

}  // namespace tessera::emulator
