// mov, cvta, isspacep, mapa and the clocks: values from one register to another.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/launch.h"

namespace tessera::emulator {
namespace {

struct Copy {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

// mov.b32 %r, {%lo, %hi} and back.
struct Pieces {
  Slot whole;
  std::vector<Slot> pieces = {};  // from the lowest bits; bytes 0: not wanted
};

void join_pieces(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& [whole, pieces] = instruction.details<Pieces>();
  for_each_lane(lanes, [&](int lane) {
    uint64_t value = 0;
    for (size_t i = pieces.size(); i-- > 0;) {
      value = value << 8 * pieces[i].bytes | warp.read(pieces[i], lane);
    }
    warp.write(whole, lane, value);
  });
}

void split_whole(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& [whole, pieces] = instruction.details<Pieces>();
  const int bits = 8 * whole.bytes / static_cast<int>(pieces.size());
  for_each_lane(lanes, [&](int lane) {
    uint64_t value = warp.read(whole, lane);
    for (const Slot& piece : pieces) {
      if (piece.bytes != 0) warp.write(piece, lane, value);
      value >>= bits;
    }
  });
}

void bind_pieces(Instruction& instruction, const Statement& statement, KernelBuilder& builder,
                 int bytes) {
  const bool joins = statement.operand(1).is_list;
  const Operand& list = statement.operand(joins ? 1 : 0);
  Pieces pieces{.whole = builder.slot(statement.operand(joins ? 0 : 1), bytes)};
  const int piece_bytes = bytes / static_cast<int>(list.names.size());
  for (const std::string& name : list.names) {
    pieces.pieces.push_back(name == "_" ? Slot{} : builder.slot(name, piece_bytes));
  }
  instruction.set_details(std::move(pieces));
  instruction.handler = joins ? join_pieces : split_whole;
}

struct PredicateMove {
  bool is_negated = false;
};

void move_predicate(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint32_t value = warp.predicate(instruction.at[1]);
  const bool is_negated = instruction.details<PredicateMove>().is_negated;
  warp.set_predicate(instruction.at[0], lanes, is_negated ? ~value : value);
}

struct Clock {
  Slot result;
};

uint64_t nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Reading a clock ends the turn and counts as progress: whoever waits for a time will see it come.
template <bool kCountsCycles>
void read_clock(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const uint64_t time = kCountsCycles ? warp.launch().num_executed : nanoseconds();
  for_each_lane(lanes,
                [&](int lane) { warp.write(instruction.details<Clock>().result, lane, time); });
  ++warp.launch().num_events;
  warp.end_turn();
}

void bind_mov(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  const int bytes = bytes_of(*type);
  const Operand& from = statement.operand(1);
  if (*type == Type::pred) {
    use_operands(instruction, statement, builder, 2, 1);
    instruction.set_details(PredicateMove{from.is_negated});
    instruction.handler = move_predicate;
    return;
  }
  if (statement.operand(0).is_list || from.is_list) {
    return bind_pieces(instruction, statement, builder, bytes);
  }
  const bool is_cycles = from.name().starts_with("%clock");
  if (is_cycles || from.name().starts_with("%globaltimer")) {
    instruction.set_details(Clock{builder.slot(statement.operand(0), bytes)});
    instruction.handler = is_cycles ? read_clock<true> : read_clock<false>;
    return;
  }
  use_operands(instruction, statement, builder, 2, bytes);
  if (bytes == 2) instruction.handler = elementwise<Copy, uint16_t, uint16_t>;
  if (bytes == 4) instruction.handler = elementwise<Copy, uint32_t, uint32_t>;
  if (bytes == 8) instruction.handler = elementwise<Copy, uint64_t, uint64_t>;
}

struct ToGeneric {
  uint64_t operator()(uint64_t address) const { return address + kSharedWindow; }
};
struct ToShared {
  uint64_t operator()(uint64_t address) const { return address - kSharedWindow; }
};

// Only shared memory has addresses of its own; all others are those of the host.
void bind_cvta(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type || bytes_of(*type) != 8) return;
  use_operands(instruction, statement, builder, 2, 8);
  const bool is_to = statement.part(1) == "to";
  if (!statement.part(is_to ? 2 : 1).starts_with("shared")) {
    instruction.handler = elementwise<Copy, uint64_t, uint64_t>;
  } else if (is_to) {
    instruction.handler = elementwise<ToShared, uint64_t, uint64_t>;
  } else {
    instruction.handler = elementwise<ToGeneric, uint64_t, uint64_t>;
  }
}

template <bool kShared>
void is_in_space(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  uint32_t result = 0;
  for_each_lane(lanes, [&](int lane) {
    const bool is_in = is_shared(warp.reg<uint64_t>(instruction.at[1])[lane]) == kShared;
    result |= uint32_t{is_in} << lane;
  });
  warp.set_predicate(instruction.at[0], lanes, result);
}

void bind_isspacep(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  instruction.at[0] = builder.slot(statement.operand(0), 1).at;
  instruction.at[1] = builder.slot(statement.operand(1), 8).at;
  if (statement.part(1).starts_with("shared")) instruction.handler = is_in_space<true>;
  if (statement.part(1) == "global") instruction.handler = is_in_space<false>;
}

// mapa: the address of the same variable in another block of the cluster.
struct Mapping {
  Slot result, address;
  bool is_generic = false;
};

void map_address(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& mapping = instruction.details<Mapping>();
  for_each_lane(lanes, [&](int lane) {
    const uint32_t rank = warp.reg<uint32_t>(instruction.at[2])[lane];
    if (rank >= warp.cluster().blocks.size()) {
      warp.fault(instruction, FaultKind::illegal_address,
                 "block " + std::to_string(rank) + " of a cluster of " +
                     std::to_string(warp.cluster().blocks.size()));
    }
    const uint64_t base = mapping.is_generic ? kSharedWindow : 0;
    const uint64_t offset = (warp.read(mapping.address, lane) - base) % kBlockWindow;
    warp.write(mapping.result, lane, base + offset + uint64_t{rank} * kBlockWindow);
  });
}

void bind_mapa(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  const int bytes = bytes_of(*type);
  const bool is_generic = bytes == 8 && !statement.has("shared::cluster");
  instruction.set_details(Mapping{builder.slot(statement.operand(0), bytes),
                                  builder.slot(statement.operand(1), bytes), is_generic});
  instruction.at[2] = builder.slot(statement.operand(2), 4).at;
  instruction.handler = map_address;
}

// A policy for the L2 cache is a number that nothing looks at.
struct NoPolicy {
  uint64_t operator()(uint64_t) const { return 0; }
};

void bind_policy(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  instruction.at[0] = instruction.at[1] = builder.slot(statement.operand(0), 8).at;
  instruction.handler = elementwise<NoPolicy, uint64_t, uint64_t>;
}

constexpr Family kFamilies[] = {{"mov", bind_mov},
                                {"cvta", bind_cvta},
                                {"isspacep", bind_isspacep},
                                {"mapa", bind_mapa},
                                {"createpolicy", bind_policy}};

}  // namespace

std::span<const Family> move_instructions() { return kFamilies; }

}  // namespace tessera::emulator
