// How a warp chooses what to execute next.
// SPDX-License-Identifier: MIT
#include "tests/emulator/warp.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "tests/emulator/launch.h"

namespace tessera::emulator {

Cluster& Warp::cluster() const { return *block_.cluster; }

void Warp::run(int quantum) {
  instructions_left_ = quantum;
  ends_turn_ = has_only_waited_ = false;
  if (!resume()) {
    has_only_waited_ = true;
    return;
  }
  while (!is_done() && run_group(lowest_group())) {
  }
}

// False if the warp still waits for its cluster.
bool Warp::resume() {
  if (!waits_for_cluster_) return true;
  if (cluster().barrier_phase == cluster_phase_) return false;
  waits_for_cluster_ = has_arrived_at_cluster_ = false;
  return true;
}

size_t Warp::lowest_group() const {
  size_t lowest = groups_.size();
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i].is_waiting) continue;
    if (lowest == groups_.size() || groups_[i].pc < groups_[lowest].pc) lowest = i;
  }
  if (lowest == groups_.size()) {
    const size_t pc = static_cast<size_t>(groups_[0].pc);
    fault(launch_.kernel->code[pc], FaultKind::timeout,
          "lanes wait for lanes of their warp that do not come: " + describe());
  }
  return lowest;
}

// Takes in the groups that have come to the same place. False if another group is behind: it has to
// run first, because it may be about to come here.
bool Warp::join_groups(size_t& index, int pc, uint32_t& lanes) {
  bool is_lowest = true;
  for (size_t i = 0; i < groups_.size();) {
    if (i != index && groups_[i].pc == pc) {
      lanes |= groups_[i].lanes;
      groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < index) --index;
      continue;
    }
    if (i != index && !groups_[i].is_waiting && groups_[i].pc < pc) is_lowest = false;
    ++i;
  }
  groups_[index] = {pc, lanes, false};
  return is_lowest;
}

// Executes the instructions of one group until lanes leave it, it has to wait for others, or the
// turn ends. False if the turn has ended.
bool Warp::run_group(size_t index) {
  int pc = groups_[index].pc;
  uint32_t lanes = groups_[index].lanes;
  const std::vector<Instruction>& code = launch_.kernel->code;
  while (true) {
    const Instruction& instruction = code[static_cast<size_t>(pc)];
    if (groups_.size() > 1 && (instruction.is_target || instruction.flow >= Flow::converge) &&
        !join_groups(index, pc, lanes)) {
      return true;
    }
    uint32_t active = lanes;
    if (instruction.guard >= 0) {
      const uint32_t guard = predicate(static_cast<uint32_t>(instruction.guard));
      active &= instruction.is_guard_negated ? ~guard : guard;
    }
    ++launch_.num_executed;
    if (launch_.is_traced) [[unlikely]]
      trace(instruction, pc, active);
    if (active != 0) {
      switch (instruction.flow) {
        case Flow::plain:
          if (instruction.handler == nullptr) [[unlikely]] {
            fault(instruction, FaultKind::illegal_instruction, "unknown instruction");
          }
          instruction.handler(*this, instruction, active);
          break;
        case Flow::branch:
          if (active == lanes) {
            pc = instruction.target - 1;
            break;
          }
          groups_[index] = {pc + 1, lanes & ~active, false};
          groups_.push_back({instruction.target, active, false});
          return true;
        case Flow::exit: leave_lanes(index, pc, lanes, active); return true;
        case Flow::converge:
        case Flow::barrier:
          if (!converge(instruction, index, pc, lanes, active)) return true;
          if (repeats_) {
            repeats_ = false;
            has_only_waited_ = true;
            groups_[index] = {pc, lanes, false};
            return false;
          }
          break;
      }
    }
    ++pc;
    if (ends_turn_ || --instructions_left_ <= 0 || is_blocked() || waits_for_cluster_) {
      groups_[index] = {pc, lanes, false};
      return false;
    }
  }
}

// Executes an instruction of several lanes; false if some of them are not here yet.
bool Warp::converge(const Instruction& instruction, size_t index, int pc, uint32_t lanes,
                    uint32_t active) {
  uint32_t needed = alive_;
  if (instruction.members >= 0) {
    needed &= reg<uint32_t>(static_cast<uint32_t>(instruction.members))[std::countr_zero(active)];
  }
  if ((active & needed) != needed) {
    groups_[index] = {pc, lanes, true};
    return false;
  }
  if (instruction.handler == nullptr) {
    fault(instruction, FaultKind::illegal_instruction, "unknown instruction");
  }
  instruction.handler(*this, instruction, active);
  return true;
}

void Warp::leave_lanes(size_t index, int pc, uint32_t lanes, uint32_t leaving) {
  alive_ &= ~leaving;
  if (lanes == leaving) {
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(index));
  } else {
    groups_[index] = {pc + 1, lanes & ~leaving, false};
  }
  // Nobody waits for lanes that are gone.
  for (LaneGroup& group : groups_) group.is_waiting = false;
}

void Warp::arrive_at_cluster(const Instruction& instruction) {
  if (has_arrived_at_cluster_) {
    fault(instruction, FaultKind::launch_failure, "a second arrival without a wait");
  }
  has_arrived_at_cluster_ = true;
  cluster_phase_ = cluster().barrier_phase;
  ++cluster().num_arrived_warps;
  if (cluster().release_if_full()) ++launch_.num_events;
}

void Warp::wait_for_cluster(const Instruction& instruction) {
  if (!has_arrived_at_cluster_) {
    fault(instruction, FaultKind::launch_failure, "a wait without an arrival");
  }
  waits_for_cluster_ = true;
  resume();
}

void Warp::commit_cp_async() {
  copy_groups_.push_back(std::move(open_copies_));
  open_copies_.clear();
}

void Warp::wait_cp_async(size_t num_in_flight) {
  while (copy_groups_.size() > num_in_flight) {
    for (const auto& copy : copy_groups_.front()) copy();
    copy_groups_.erase(copy_groups_.begin());
  }
}

void Warp::issue_copy(std::function<void()> copy, bool is_of_bulk_group) {
  constexpr int kMostTurns = 24;
  cluster().copies.push_back({.run = std::move(copy),
                              .turns_left = static_cast<int>(launch_.random() % kMostTurns),
                              .warp = this,
                              .bulk_group = is_of_bulk_group ? bulk_group_ : -1});
}

void Warp::wait_bulk_groups(int num_in_flight) {
  const int last = bulk_group_ - 1 - num_in_flight;
  std::vector<PendingCopy>& copies = cluster().copies;
  for (size_t i = 0; i < copies.size();) {
    if (copies[i].warp != this || copies[i].bulk_group < 0 || copies[i].bulk_group > last) {
      ++i;
      continue;
    }
    const auto run = std::move(copies[i].run);
    copies.erase(copies.begin() + static_cast<std::ptrdiff_t>(i));
    run();
  }
}

void Warp::trace(const Instruction& instruction, int pc, uint32_t lanes) const {
  if (lanes == 0) return;
  std::fprintf(stderr, "block %u,%u,%u warp %2d lanes %08x %5d  %s\n", block_.id[0], block_.id[1],
               block_.id[2], index_, lanes, pc, instruction.text.c_str());
}

std::string Warp::describe() const {
  std::string text;
  for (const LaneGroup& group : groups_) {
    char lanes[32];
    std::snprintf(lanes, sizeof lanes, "%s[lanes %08x at ", text.empty() ? "" : " ", group.lanes);
    const std::string& at = launch_.kernel->code[static_cast<size_t>(group.pc)].text;
    text += lanes + at.substr(0, 80) + "]";
  }
  if (is_blocked()) text += " waits at barrier " + std::to_string(barrier_);
  if (waits_for_cluster_) text += " waits for its cluster";
  return text;
}

void Warp::fault(const Instruction& instruction, FaultKind kind, const std::string& what) const {
  char place[96];
  std::snprintf(place, sizeof place, ", block %u,%u,%u, warp %d, at: ", block_.id[0], block_.id[1],
                block_.id[2], index_);
  constexpr size_t kMostText = 160;
  throw Fault(kind, "kernel " + launch_.kernel->name + place +
                        instruction.text.substr(0, kMostText) + ": " + what);
}

}  // namespace tessera::emulator
