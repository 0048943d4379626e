// Barriers of a warp, a block and a cluster.
// SPDX-License-Identifier: MIT
#include <bit>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/launch.h"

namespace tessera::emulator {
namespace {

// bar.sync arrives and waits; bar.arrive does not wait; bar.red also combines predicates.
struct BarrierDetails {
  uint32_t barrier = 0;  // offset of its number
  uint32_t count = 0;    // offset of the number of threads; 0: all
  bool waits = true;
  bool reduces = false, wants_any = false;
  bool is_negated = false;
  uint32_t result = 0, predicate = 0;  // of bar.red
};

NamedBarrier& barrier_of(Warp& warp, const Instruction& instruction, uint32_t number) {
  if (number >= Block::kBarriers) {
    warp.fault(
        instruction, FaultKind::launch_failure,
        "barrier " + std::to_string(number) + "; a block has " + std::to_string(Block::kBarriers));
  }
  return warp.block().barriers[number];
}

void check_count(Warp& warp, const Instruction& instruction, const NamedBarrier& barrier,
                 int count) {
  const auto fail = [&](const std::string& what) {
    warp.fault(instruction, FaultKind::launch_failure, what);
  };
  if (count > 0 && count % kWarpLanes != 0) {
    fail("a count of " + std::to_string(count) + " is no multiple of 32");
  }
  if (barrier.arrived > 0 && barrier.expected != count) {
    fail("threads of one barrier disagree about its count: " + std::to_string(count) + " and " +
         std::to_string(barrier.expected));
  }
  if (count > 0 && barrier.arrived + kWarpLanes > count) {
    fail("more threads arrive than the count of " + std::to_string(count));
  }
}

void use_barrier(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& details = instruction.details<BarrierDetails>();
  const int lane = std::countr_zero(lanes);
  const uint32_t number = warp.reg<uint32_t>(details.barrier)[lane];
  NamedBarrier& barrier = barrier_of(warp, instruction, number);
  const int count =
      details.count != 0 ? static_cast<int>(warp.reg<uint32_t>(details.count)[lane]) : -1;
  check_count(warp, instruction, barrier, count);
  barrier.expected = count;
  barrier.arrived += kWarpLanes;
  if (details.reduces) {
    uint32_t values = warp.predicate(details.predicate);
    if (details.is_negated) values = ~values;
    barrier.any |= (values & lanes) != 0;
    barrier.all &= (values & lanes) == lanes;
    barrier.readers.push_back({&warp, details.result, details.wants_any});
  }
  if (details.waits) {
    barrier.waiting.push_back(&warp);
    warp.block_at(static_cast<int>(number));
  }
  if (warp.block().release_if_full(barrier)) ++warp.launch().num_events;
}

void bind_cluster_barrier(Instruction& instruction, const Statement& statement) {
  if (statement.has("arrive")) {
    instruction.handler = [](Warp& warp, const Instruction& self, uint32_t) {
      warp.arrive_at_cluster(self);
    };
  } else if (statement.has("wait")) {
    instruction.handler = [](Warp& warp, const Instruction& self, uint32_t) {
      warp.wait_for_cluster(self);
    };
  }
}

void bind_barrier(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (statement.has("warp")) {  // to meet is all it does
    instruction.flow = Flow::converge;
    instruction.members = static_cast<int>(builder.slot(statement.operand(0), 4).at);
    instruction.handler = [](Warp&, const Instruction&, uint32_t) {};
    return;
  }
  instruction.flow = Flow::barrier;
  if (statement.has("cluster")) return bind_cluster_barrier(instruction, statement);
  BarrierDetails details;
  details.waits = !statement.has("arrive");
  details.reduces = statement.has("red");
  size_t next = 0;
  if (details.reduces) {
    if (statement.has("popc")) return;
    details.wants_any = statement.has("or");
    details.result = builder.slot(statement.operand(next++), 1).at;
  }
  details.barrier = builder.slot(statement.operand(next++), 4).at;
  const size_t end = statement.operands.size() - (details.reduces ? 1 : 0);
  if (next < end) details.count = builder.slot(statement.operand(next), 4).at;
  if (details.reduces) {
    details.predicate = builder.slot(statement.operands.back(), 1).at;
    details.is_negated = statement.operands.back().is_negated;
  }
  instruction.set_details(details);
  instruction.handler = use_barrier;
}

constexpr Family kFamilies[] = {{"bar", bind_barrier}, {"barrier", bind_barrier}};

}  // namespace

std::span<const Family> barrier_instructions() { return kFamilies; }

}  // namespace tessera::emulator
