// Instructions in which lanes see each other's values: shfl, vote, match, redux, elect, activemask.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"

namespace tessera::emulator {
namespace {

// The lanes that take part are named by the last operand.
void converge_on_last(Instruction& instruction, const Statement& statement,
                      KernelBuilder& builder) {
  instruction.flow = Flow::converge;
  instruction.members = static_cast<int>(builder.slot(statement.operands.back(), 4).at);
}

enum class Shuffle : uint8_t { up, down, butterfly, index };

struct ShuffleDetails {
  Shuffle kind;
  bool tells_range = false;  // whether the source was within range, to the predicate in at[4]
};

struct Source {
  int lane;
  bool is_in_range;
};

// From which lane: bits 8 to 12 of `clamp` split the warp into segments, the lower ones bound them.
Source source_of(Shuffle kind, int lane, uint32_t operand, uint32_t clamp) {
  const int segment = static_cast<int>(clamp >> 8 & 31), bound = static_cast<int>(clamp & 31);
  const int highest = (lane & segment) | (bound & ~segment), lowest = lane & segment;
  const int by = static_cast<int>(operand & 31);
  Source source{};
  switch (kind) {
    case Shuffle::up: source = {lane - by, lane - by >= highest}; break;
    case Shuffle::down: source = {lane + by, lane + by <= highest}; break;
    case Shuffle::butterfly: source = {lane ^ by, (lane ^ by) <= highest}; break;
    case Shuffle::index:
      source.lane = lowest | (by & ~segment);
      source.is_in_range = source.lane <= highest;
      break;
  }
  if (!source.is_in_range) source.lane = lane;
  return source;
}

void shuffle(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& details = instruction.details<ShuffleDetails>();
  std::array<uint32_t, kWarpLanes> values;
  std::copy_n(warp.reg<uint32_t>(instruction.at[1]), kWarpLanes, values.begin());
  uint32_t in_range = 0;
  for_each_lane(lanes, [&](int lane) {
    const Source source = source_of(details.kind, lane, warp.reg<uint32_t>(instruction.at[2])[lane],
                                    warp.reg<uint32_t>(instruction.at[3])[lane]);
    warp.reg<uint32_t>(instruction.at[0])[lane] = values[static_cast<size_t>(source.lane)];
    in_range |= uint32_t{source.is_in_range} << lane;
  });
  if (details.tells_range) warp.set_predicate(instruction.at[4], lanes, in_range);
}

void bind_shuffle(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const bool tells_range = statement.operand(1).is_second;
  const size_t inputs = tells_range ? 2 : 1;
  instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  for (size_t i = 0; i < 3; ++i) {
    instruction.at[1 + i] = builder.slot(statement.operand(inputs + i), 4).at;
  }
  if (tells_range) instruction.at[4] = builder.slot(statement.operand(1), 1).at;
  ShuffleDetails details{.kind = Shuffle::index, .tells_range = tells_range};
  if (statement.has("up")) details.kind = Shuffle::up;
  if (statement.has("down")) details.kind = Shuffle::down;
  if (statement.has("bfly")) details.kind = Shuffle::butterfly;
  instruction.set_details(details);
  converge_on_last(instruction, statement, builder);
  instruction.handler = shuffle;
}

enum class Vote : uint8_t { any, all, uniform, ballot };

struct VoteDetails {
  Vote kind;
  bool is_negated = false;
};

void vote(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& [kind, is_negated] = instruction.details<VoteDetails>();
  uint32_t ayes = warp.predicate(instruction.at[1]);
  ayes = (is_negated ? ~ayes : ayes) & lanes;
  if (kind == Vote::ballot) {
    for_each_lane(lanes, [&](int lane) { warp.reg<uint32_t>(instruction.at[0])[lane] = ayes; });
    return;
  }
  const bool result = kind == Vote::any   ? ayes != 0
                      : kind == Vote::all ? ayes == lanes
                                          : ayes == 0 || ayes == lanes;
  warp.set_predicate(instruction.at[0], lanes, result ? kAllLanes : 0);
}

void bind_vote(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  VoteDetails details{.kind = Vote::ballot, .is_negated = statement.operand(1).is_negated};
  if (statement.has("any")) details.kind = Vote::any;
  if (statement.has("all")) details.kind = Vote::all;
  if (statement.has("uni")) details.kind = Vote::uniform;
  const int bytes = details.kind == Vote::ballot ? 4 : 1;
  instruction.at[0] = builder.slot(statement.operand(0), bytes).at;
  instruction.at[1] = builder.slot(statement.operand(1), 1).at;
  instruction.set_details(details);
  converge_on_last(instruction, statement, builder);
  instruction.handler = vote;
}

struct MatchDetails {
  Slot value;
};

// For each lane, the lanes whose value is the same.
void match_any(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const Slot value = instruction.details<MatchDetails>().value;
  std::array<uint32_t, kWarpLanes> same{};
  for_each_lane(lanes, [&](int lane) {
    for_each_lane(lanes, [&](int other) {
      const bool is_same = warp.read(value, lane) == warp.read(value, other);
      same[static_cast<size_t>(lane)] |= uint32_t{is_same} << other;
    });
  });
  for_each_lane(lanes, [&](int lane) {
    warp.reg<uint32_t>(instruction.at[0])[lane] = same[static_cast<size_t>(lane)];
  });
}

void bind_match(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type || !statement.has("any")) return;
  instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  instruction.set_details(MatchDetails{builder.slot(statement.operand(1), bytes_of(*type))});
  converge_on_last(instruction, statement, builder);
  instruction.handler = match_any;
}

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
  }
};
struct Smallest {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct Largest {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
struct AllBits {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a & b; }
};
struct AnyBits {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};
struct OddBits {
  uint32_t operator()(uint32_t a, uint32_t b) const { return a ^ b; }
};

template <class F, class T>
void reduce(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const T* const values = warp.reg<T>(instruction.at[1]);
  const int first = std::countr_zero(lanes);
  T result = values[first];
  for_each_lane(lanes & (lanes - 1), [&](int lane) { result = F{}(result, values[lane]); });
  for_each_lane(lanes, [&](int lane) { warp.reg<T>(instruction.at[0])[lane] = result; });
}

template <class T>
Handler reduction(const Statement& statement) {
  if (statement.has("add")) return reduce<Sum, T>;
  if (statement.has("min")) return reduce<Smallest, T>;
  if (statement.has("max")) return reduce<Largest, T>;
  if constexpr (std::is_unsigned_v<T>) {
    if (statement.has("and")) return reduce<AllBits, T>;
    if (statement.has("or")) return reduce<AnyBits, T>;
    if (statement.has("xor")) return reduce<OddBits, T>;
  }
  return nullptr;
}

void bind_reduction(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (type != Type::s32 && type != Type::u32) return;
  use_operands(instruction, statement, builder, 2, 4);
  converge_on_last(instruction, statement, builder);
  instruction.handler =
      type == Type::s32 ? reduction<int32_t>(statement) : reduction<uint32_t>(statement);
}

// elect: the lowest lane of those that take part.
struct ElectDetails {
  bool names_lane = false;
};

void elect(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  warp.set_predicate(instruction.at[1], lanes, lanes & (~lanes + 1));
  if (!instruction.details<ElectDetails>().names_lane) return;
  for_each_lane(lanes, [&](int lane) {
    warp.reg<uint32_t>(instruction.at[0])[lane] = static_cast<uint32_t>(std::countr_zero(lanes));
  });
}

void bind_elect(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const bool names_lane = !statement.operand(0).is_absent();
  if (names_lane) instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  instruction.at[1] = builder.slot(statement.operand(1), 1).at;
  instruction.set_details(ElectDetails{names_lane});
  converge_on_last(instruction, statement, builder);
  instruction.handler = elect;
}

void bind_activemask(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  instruction.at[0] = builder.slot(statement.operand(0), 4).at;
  instruction.handler = [](Warp& warp, const Instruction& self, uint32_t lanes) {
    for_each_lane(lanes, [&](int lane) { warp.reg<uint32_t>(self.at[0])[lane] = lanes; });
  };
}

constexpr Family kFamilies[] = {{"shfl", bind_shuffle}, {"vote", bind_vote},
                                {"match", bind_match},  {"redux", bind_reduction},
                                {"elect", bind_elect},  {"activemask", bind_activemask}};

}  // namespace

std::span<const Family> warp_instructions() { return kFamilies; }

}  // namespace tessera::emulator
