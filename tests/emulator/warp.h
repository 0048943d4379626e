// A warp: 32 lanes with registers of their own, which share one instruction at a time.
//
// Lanes whose branches differ split into groups, each with a program counter. The runnable group
// with the lowest counter goes first, so lanes that left a loop wait behind it for the others, and
// groups meet again where code joins. An instruction of the whole warp (shfl.sync, mma.sync) waits
// until the groups of its member mask have met: it never takes a value from a lane that is
// elsewhere.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/emulator/fault.h"
#include "tests/emulator/kernel.h"
#include "tests/emulator/memory.h"

namespace tessera::emulator {

struct Launch;
struct Block;
struct Cluster;

struct LaneGroup {
  int pc = 0;  // index of the next instruction
  uint32_t lanes = 0;
  bool is_waiting = false;  // for other lanes of the warp
};

enum class Space : uint8_t { generic, shared, global, parameter };

class Warp {
 public:
  // `registers` has the kernel's register_bytes and outlives the warp.
  Warp(Launch& launch, Block& block, int index, char* registers);

  // Executes about `quantum` instructions: fewer if the warp has to wait or is done.
  void run(int quantum);

  bool is_done() const { return alive_ == 0; }
  bool is_blocked() const { return barrier_ >= 0; }          // at a barrier of the block
  bool has_only_waited() const { return has_only_waited_; }  // in its last run
  std::string describe() const;                              // where its lanes are

  // For handlers.

  template <class T>
  T* reg(uint32_t at) {
    return reinterpret_cast<T*>(registers_ + at);
  }
  uint32_t& predicate(uint32_t at) { return *reg<uint32_t>(at); }
  void set_predicate(uint32_t at, uint32_t lanes, uint32_t values) {
    predicate(at) = (predicate(at) & ~lanes) | (values & lanes);
  }
  uint64_t read(Slot slot, int lane);
  void write(Slot slot, int lane, uint64_t value);

  // Host address of `bytes` at a device address, checked against what exists and for alignment.
  char* memory(const Instruction& instruction, Space space, uint64_t address, int bytes);
  char* shared(const Instruction& instruction, uint32_t address, int bytes);
  void check_global(const Instruction& instruction, uint64_t address, uint64_t bytes);

  [[noreturn]] void fault(const Instruction& instruction, FaultKind kind,
                          const std::string& what) const;

  Launch& launch() { return launch_; }
  Block& block() { return block_; }
  const Block& block() const { return block_; }
  const Launch& launch() const { return launch_; }
  Cluster& cluster() const;
  int index() const { return index_; }
  uint32_t alive() const { return alive_; }

  void end_turn() { ends_turn_ = true; }  // so that others run before the next instruction
  void wait_a_turn() { ends_turn_ = has_only_waited_ = true; }
  void repeat() { repeats_ = true; }  // the instruction has to wait: execute it again later

  void block_at(int barrier) { barrier_ = barrier; }
  void unblock() { barrier_ = -1; }
  void arrive_at_cluster(const Instruction& instruction);
  void wait_for_cluster(const Instruction& instruction);

  // Issues a copy that happens later. Those of bulk groups are waited for by group.
  void issue_copy(std::function<void()> copy, bool is_of_bulk_group);
  void commit_bulk_group() { ++bulk_group_; }
  void wait_bulk_groups(int num_in_flight);

  // cp.async: copies that happen no sooner than a wait asks for them.
  void add_cp_async(std::function<void()> copy) { open_copies_.push_back(std::move(copy)); }
  void commit_cp_async();
  void wait_cp_async(size_t num_in_flight);

  int num_wgmma_commits = 0;

 private:
  void write_constants();
  bool resume();
  size_t lowest_group() const;
  bool run_group(size_t index);
  bool join_groups(size_t& index, int pc, uint32_t& lanes);
  bool converge(const Instruction& instruction, size_t index, int pc, uint32_t lanes,
                uint32_t active);
  void leave_lanes(size_t index, int pc, uint32_t lanes, uint32_t leaving);
  void trace(const Instruction& instruction, int pc, uint32_t lanes) const;

  Launch& launch_;
  Block& block_;
  const int index_;
  char* const registers_;
  uint32_t alive_ = 0;
  std::vector<LaneGroup> groups_;
  std::vector<char> local_;  // local memory of all lanes, one after another

  int instructions_left_ = 0;
  bool ends_turn_ = false, has_only_waited_ = false, repeats_ = false;
  int barrier_ = -1;
  bool has_arrived_at_cluster_ = false, waits_for_cluster_ = false;
  uint64_t cluster_phase_ = 0;  // when it arrived

  std::vector<std::function<void()>> open_copies_;
  std::vector<std::vector<std::function<void()>>> copy_groups_;
  int bulk_group_ = 0;

  // Ranges found last, since asking for one takes long.
  std::array<Range, 4> known_ranges_;
  size_t oldest_range_ = 0;
  uint64_t ranges_version_ = ~uint64_t{0};
};

}  // namespace tessera::emulator
