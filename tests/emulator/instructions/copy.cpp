// cp.async and cp.async.bulk: copies that happen later than the instruction.
//
// Those of cp.async happen when a wait asks for their group, as late as a device might. A bulk copy
// happens after a random time and then tells an mbarrier, or is waited for by group.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/instructions/mbarrier.h"
#include "tests/emulator/instructions/multicast.h"
#include "tests/emulator/instructions/tensor_copy.h"

namespace tessera::emulator {
namespace {

struct AsyncCopy {
  Slot shared, global;
  uint32_t shared_offset = 0;
  uint64_t global_offset = 0;
  uint32_t bytes = 0;
  Slot source_bytes{};  // the rest is filled with zeros; bytes 0: all of it
};

void copy_async(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& copy = instruction.details<AsyncCopy>();
  for_each_lane(lanes, [&](int lane) {
    const uint32_t address = warp.reg<uint32_t>(copy.shared.at)[lane] + copy.shared_offset;
    const uint64_t source = warp.reg<uint64_t>(copy.global.at)[lane] + copy.global_offset;
    const uint32_t bytes = copy.bytes;
    uint32_t valid = bytes;
    if (copy.source_bytes.bytes != 0) {
      valid = std::min(valid, static_cast<uint32_t>(warp.read(copy.source_bytes, lane)));
    }
    char* const to = warp.shared(instruction, address, static_cast<int>(bytes));
    if (valid != 0) {  // else the source is not looked at
      warp.check_global(instruction, source, valid);
      if (source % bytes != 0) {
        warp.fault(instruction, FaultKind::misaligned_address,
                   "a source of " + std::to_string(bytes) + " bytes that is not aligned to them");
      }
    }
    warp.add_cp_async([=] {
      std::array<char, 16> data{};
      std::memcpy(data.data(), reinterpret_cast<const void*>(source), valid);
      std::memcpy(to, data.data(), bytes);
    });
  });
}

void wait_for_all(Warp& warp) {
  warp.commit_cp_async();
  warp.wait_cp_async(0);
}

struct Groups {
  int num_in_flight;  // that a wait leaves
};

struct ArrivalDetails {
  Slot barrier;
  bool is_expected = false;  // .noinc: the barrier's count includes it
};

// The mbarrier is told when all copies so far have happened: here, at once.
void arrive_after_copies(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& details = instruction.details<ArrivalDetails>();
  wait_for_all(warp);
  for_each_lane(lanes, [&](int lane) {
    MBarrier barrier = mbarrier_at(warp, instruction, details.barrier, lane);
    if (!details.is_expected) barrier.expect_another();
    arrive(warp, instruction, barrier, 1, 0);
  });
}

void bind_async(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const std::string& kind = statement.part(2);
  if (kind == "commit_group") {
    instruction.handler = [](Warp& warp, const Instruction&, uint32_t) { warp.commit_cp_async(); };
  } else if (kind == "wait_group") {
    instruction.set_details(Groups{static_cast<int>(statement.number(0))});
    instruction.handler = [](Warp& warp, const Instruction& self, uint32_t) {
      warp.wait_cp_async(static_cast<size_t>(self.details<Groups>().num_in_flight));
    };
  } else if (kind == "wait_all") {
    instruction.handler = [](Warp& warp, const Instruction&, uint32_t) { wait_for_all(warp); };
  } else if (kind == "mbarrier") {
    instruction.set_details(
        ArrivalDetails{builder.slot(statement.operand(0), 4), statement.has("noinc")});
    instruction.handler = arrive_after_copies;
  } else if (kind == "ca" || kind == "cg") {
    const Operand &shared = statement.operand(0), &global = statement.operand(1);
    AsyncCopy copy{.shared = builder.slot(shared, 4),
                   .global = builder.slot(global, 8),
                   .shared_offset = static_cast<uint32_t>(shared.offset),
                   .global_offset = static_cast<uint64_t>(global.offset),
                   .bytes = static_cast<uint32_t>(statement.number(2))};
    const size_t end = statement.operands.size() - (statement.has("L2::cache_hint") ? 1 : 0);
    if (end > 3) copy.source_bytes = builder.slot(statement.operand(3), 4);
    instruction.set_details(copy);
    instruction.handler = copy_async;
  }
}

struct BulkCopy {
  Slot to{}, from{}, bytes{};
  Slot barrier{};  // bytes 0: of a bulk group
  Slot mask{};     // of a multicast; bytes 0: none
  bool is_from_shared = false;
};

uint32_t checked_bytes(Warp& warp, const Instruction& instruction, const BulkCopy& copy, int lane) {
  constexpr uint64_t kAlign = 16;
  const uint64_t to = warp.read(copy.to, lane), from = warp.read(copy.from, lane);
  const uint64_t bytes = warp.read(copy.bytes, lane);
  if ((to | from | bytes) % kAlign != 0) {
    warp.fault(instruction, FaultKind::misaligned_address,
               "addresses and size (" + std::to_string(bytes) +
                   ") of a bulk copy must be multiples of 16");
  }
  return static_cast<uint32_t>(bytes);
}

// Into shared memory, from global memory or from a block of the cluster.
void copy_in(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& copy = instruction.details<BulkCopy>();
  for_each_lane(lanes, [&](int lane) {
    const uint32_t bytes = checked_bytes(warp, instruction, copy, lane);
    const uint64_t source = warp.read(copy.from, lane);
    const char* from = reinterpret_cast<const char*>(source);
    if (copy.is_from_shared) {
      from = warp.shared(instruction, static_cast<uint32_t>(source), static_cast<int>(bytes));
    } else {
      warp.check_global(instruction, source, bytes);
    }
    const bool is_multicast = copy.mask.bytes != 0;
    const auto mask = static_cast<uint32_t>(is_multicast ? warp.read(copy.mask, lane) : 0);
    for_each_destination(
        warp, warp.reg<uint32_t>(copy.to.at)[lane], warp.reg<uint32_t>(copy.barrier.at)[lane],
        is_multicast, mask, [&](uint32_t address, uint32_t barrier_address) {
          char* const to = warp.shared(instruction, address, static_cast<int>(bytes));
          MBarrier barrier = mbarrier_at(warp, instruction, barrier_address);
          warp.issue_copy(
              [=]() mutable {
                std::memcpy(to, from, bytes);
                barrier.complete_bytes(bytes);
              },
              /*is_of_bulk_group=*/false);
        });
  });
}

void copy_out(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& copy = instruction.details<BulkCopy>();
  for_each_lane(lanes, [&](int lane) {
    const uint32_t bytes = checked_bytes(warp, instruction, copy, lane);
    const uint64_t to = warp.reg<uint64_t>(copy.to.at)[lane];
    warp.check_global(instruction, to, bytes);
    const char* const from =
        warp.shared(instruction, warp.reg<uint32_t>(copy.from.at)[lane], static_cast<int>(bytes));
    warp.issue_copy([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); },
                    /*is_of_bulk_group=*/true);
  });
}

void bind_bulk(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const std::string& kind = statement.part(3);
  if (kind == "tensor") return bind_tensor_copy(instruction, statement, builder);
  if (kind == "commit_group") {
    instruction.handler = [](Warp& warp, const Instruction&, uint32_t) {
      warp.commit_bulk_group();
    };
  } else if (kind == "wait_group") {
    instruction.set_details(Groups{static_cast<int>(statement.number(0))});
    instruction.handler = [](Warp& warp, const Instruction& self, uint32_t) {
      warp.wait_bulk_groups(self.details<Groups>().num_in_flight);
    };
  } else if (kind == "prefetch") {
    instruction.handler = [](Warp&, const Instruction&, uint32_t) {};
  } else if (kind.starts_with("shared") || kind == "global") {
    for (const Operand& operand : statement.operands) {
      if (operand.offset != 0) return;
    }
    const bool is_in = kind != "global";
    BulkCopy copy{.is_from_shared = statement.part(4).starts_with("shared")};
    copy.to = builder.slot(statement.operand(0), is_in ? 4 : 8);
    copy.from = builder.slot(statement.operand(1), copy.is_from_shared ? 4 : 8);
    copy.bytes = builder.slot(statement.operand(2), 4);
    if (is_in) copy.barrier = builder.slot(statement.operand(3), 4);
    if (statement.has("multicast::cluster")) copy.mask = builder.slot(statement.operand(4), 2);
    instruction.set_details(copy);
    instruction.handler = is_in ? copy_in : copy_out;
  }
}

void bind_copy(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (statement.part(1) == "reduce") {
    if (statement.has("tensor")) bind_tensor_copy(instruction, statement, builder);
  } else if (statement.part(2) == "bulk") {
    bind_bulk(instruction, statement, builder);
  } else {
    bind_async(instruction, statement, builder);
  }
}

constexpr Family kFamilies[] = {{"cp", bind_copy}};

}  // namespace

std::span<const Family> copy_instructions() { return kFamilies; }

}  // namespace tessera::emulator
