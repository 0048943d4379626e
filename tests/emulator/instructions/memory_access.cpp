// ld, st, st.async, atom and red.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/instructions/mbarrier.h"
#include "tests/emulator/launch.h"

namespace tessera::emulator {
namespace {

struct Access {
  Space space = Space::generic;
  Slot address;
  uint64_t offset = 0;
  int element_bytes = 0;
  bool is_signed = false;
  bool is_volatile = false;
  std::vector<Slot> elements = {};  // bytes 0: not wanted

  int bytes() const { return element_bytes * static_cast<int>(elements.size()); }
};

Space space_of(const Statement& statement) {
  for (const std::string& part : statement.parts) {
    if (part.starts_with("shared")) return Space::shared;
    if (part == "param" || part == "const") return Space::parameter;
    if (part == "global" || part == "local") return Space::global;
  }
  return Space::generic;
}

Access access_of(const Statement& statement, const Operand& address, KernelBuilder& builder) {
  const Type type = last_type(statement).value_or(Type::u32);
  return {.space = space_of(statement),
          .address = builder.slot(address, 8),
          .offset = static_cast<uint64_t>(address.offset),
          .element_bytes = bytes_of(type),
          .is_signed = is_signed(type),
          .is_volatile = statement.has("volatile") || statement.has("acquire")};
}

void load(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& access = instruction.details<Access>();
  const int bytes = access.bytes();
  const auto element_bytes = static_cast<size_t>(access.element_bytes);
  for_each_lane(lanes, [&](int lane) {
    const uint64_t address = warp.read(access.address, lane) + access.offset;
    // All of it first: a register of the result may hold the address.
    std::array<char, 32> data;
    std::memcpy(data.data(), warp.memory(instruction, access.space, address, bytes),
                static_cast<size_t>(bytes));
    for (size_t i = 0; i < access.elements.size(); ++i) {
      if (access.elements[i].bytes == 0) continue;
      uint64_t value = 0;
      std::memcpy(&value, data.data() + i * element_bytes, element_bytes);
      if (access.is_signed) {
        value = static_cast<uint64_t>(sign_extend(value, access.element_bytes));
      }
      warp.write(access.elements[i], lane, value);
    }
  });
  if (access.is_volatile) warp.end_turn();  // it may wait for what others write
}

void store(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& access = instruction.details<Access>();
  const auto element_bytes = static_cast<size_t>(access.element_bytes);
  for_each_lane(lanes, [&](int lane) {
    const uint64_t address = warp.read(access.address, lane) + access.offset;
    char* to = warp.memory(instruction, access.space, address, access.bytes());
    for (const Slot& element : access.elements) {
      const uint64_t value = warp.read(element, lane);
      std::memcpy(to, &value, element_bytes);
      to += element_bytes;
    }
  });
}

void bind_load(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (!last_type(statement)) return;
  Access access = access_of(statement, statement.operand(1), builder);
  for (const std::string& name : statement.operand(0).names) {
    access.elements.push_back(name == "_" ? Slot{} : builder.slot(name, 8));
  }
  if (access.bytes() > 32) return;
  instruction.set_details(std::move(access));
  instruction.handler = load;
}

// st.async: into a block of the cluster, some time later; an mbarrier there is told.
struct AsyncStore {
  Slot address, barrier;
  int element_bytes = 0;
  std::vector<Slot> elements = {};
};

void store_later(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& store = instruction.details<AsyncStore>();
  const auto element_bytes = static_cast<size_t>(store.element_bytes);
  const size_t bytes = element_bytes * store.elements.size();
  for_each_lane(lanes, [&](int lane) {
    char* const to = warp.shared(instruction, warp.reg<uint32_t>(store.address.at)[lane],
                                 static_cast<int>(bytes));
    MBarrier barrier = mbarrier_at(warp, instruction, store.barrier, lane);
    std::array<char, 32> data;
    for (size_t i = 0; i < store.elements.size(); ++i) {
      const uint64_t value = warp.read(store.elements[i], lane);
      std::memcpy(data.data() + i * element_bytes, &value, element_bytes);
    }
    warp.issue_copy(
        [=]() mutable {
          std::memcpy(to, data.data(), bytes);
          barrier.complete_bytes(bytes);
        },
        /*is_of_bulk_group=*/false);
  });
}

void bind_async_store(Instruction& instruction, const Statement& statement,
                      KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type) return;
  AsyncStore store{.address = builder.slot(statement.operand(0), 4),
                   .barrier = builder.slot(statement.operand(2), 4),
                   .element_bytes = bytes_of(*type)};
  for (const std::string& name : statement.operand(1).names) {
    store.elements.push_back(builder.slot(name, store.element_bytes));
  }
  instruction.set_details(std::move(store));
  instruction.handler = store_later;
}

void bind_store(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  if (!last_type(statement)) return;
  if (statement.has("async")) return bind_async_store(instruction, statement, builder);
  Access access = access_of(statement, statement.operand(0), builder);
  for (const std::string& name : statement.operand(1).names) {
    access.elements.push_back(builder.slot(name, std::max(2, access.element_bytes)));
  }
  instruction.set_details(std::move(access));
  instruction.handler = store;
}

enum class AtomicOp : uint8_t {
  add,
  min,
  max,
  inc,
  dec,
  exchange,
  compare_and_swap,
  bit_and,
  bit_or,
  bit_xor,
};

struct NamedOp {
  std::string_view name;
  AtomicOp op;
};
constexpr NamedOp kAtomicOps[] = {
    {"add", AtomicOp::add},     {"min", AtomicOp::min},
    {"max", AtomicOp::max},     {"inc", AtomicOp::inc},
    {"dec", AtomicOp::dec},     {"exch", AtomicOp::exchange},
    {"and", AtomicOp::bit_and}, {"cas", AtomicOp::compare_and_swap},
    {"or", AtomicOp::bit_or},   {"xor", AtomicOp::bit_xor},
};

struct Atomic {
  AtomicOp op;
  Type type;
  Access access;
  Slot result{};         // bytes 0: not wanted
  Slot operand, swap{};  // of cas: what is expected and what replaces it
};

template <class T>
T combine_integers(AtomicOp op, T old, T operand, T swap) {
  switch (op) {
    case AtomicOp::add:
      return static_cast<T>(static_cast<uint64_t>(old) + static_cast<uint64_t>(operand));
    case AtomicOp::min: return std::min(old, operand);
    case AtomicOp::max: return std::max(old, operand);
    case AtomicOp::inc: return old >= operand ? 0 : static_cast<T>(old + 1);
    case AtomicOp::dec: return old == 0 || old > operand ? operand : static_cast<T>(old - 1);
    case AtomicOp::exchange: return operand;
    case AtomicOp::compare_and_swap: return old == operand ? swap : old;
    case AtomicOp::bit_and: return old & operand;
    case AtomicOp::bit_or: return old | operand;
    case AtomicOp::bit_xor: return old ^ operand;
  }
  return old;
}

uint64_t combine(const Atomic& atomic, uint64_t old, uint64_t operand, uint64_t swap) {
  const auto as = [&]<class T>(T) {
    return static_cast<uint64_t>(combine_integers<T>(
        atomic.op, static_cast<T>(old), static_cast<T>(operand), static_cast<T>(swap)));
  };
  switch (atomic.type) {
    case Type::s32: return as(int32_t{});
    case Type::u32: return as(uint32_t{});
    case Type::s64: return as(int64_t{});
    case Type::u64: return as(uint64_t{});
    case Type::f64:
      return std::bit_cast<uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(operand));
    default:
      return std::bit_cast<uint32_t>(std::bit_cast<float>(static_cast<uint32_t>(old)) +
                                     std::bit_cast<float>(static_cast<uint32_t>(operand)));
  }
}

// Lanes go one after another, the lowest first; a device does not promise any order.
void update(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& atomic = instruction.details<Atomic>();
  const int bytes = atomic.access.element_bytes;
  for_each_lane(lanes, [&](int lane) {
    const uint64_t address = warp.read(atomic.access.address, lane) + atomic.access.offset;
    char* const at = warp.memory(instruction, atomic.access.space, address, bytes);
    uint64_t old = 0;
    std::memcpy(&old, at, static_cast<size_t>(bytes));
    const uint64_t swap = atomic.swap.bytes != 0 ? warp.read(atomic.swap, lane) : 0;
    const uint64_t value = combine(atomic, old, warp.read(atomic.operand, lane), swap);
    std::memcpy(at, &value, static_cast<size_t>(bytes));
    if (atomic.result.bytes != 0) warp.write(atomic.result, lane, old);
  });
  ++warp.launch().num_events;
}

void bind_atomic(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const auto type = last_type(statement);
  if (!type || bytes_of(*type) < 4 || statement.has("async")) return;
  const auto* const op = std::ranges::find_if(
      kAtomicOps, [&](const NamedOp& named) { return statement.has(named.name); });
  const bool is_float = *type == Type::f32 || *type == Type::f64;
  if (op == std::end(kAtomicOps) || (!is_integer(*type) && !is_float)) return;
  if (is_float && op->op != AtomicOp::add) return;
  const int bytes = bytes_of(*type);
  const bool returns = statement.part(0) == "atom";
  const size_t address = returns ? 1 : 0;
  Atomic atomic{.op = op->op,
                .type = *type,
                .access = access_of(statement, statement.operand(address), builder),
                .operand = builder.slot(statement.operand(address + 1), bytes)};
  if (returns && !statement.operand(0).is_absent()) {
    atomic.result = builder.slot(statement.operand(0), bytes);
  }
  if (atomic.op == AtomicOp::compare_and_swap) {
    atomic.swap = builder.slot(statement.operand(address + 2), bytes);
  }
  instruction.set_details(std::move(atomic));
  instruction.handler = update;
}

constexpr Family kFamilies[] = {{"ld", bind_load},
                                {"ldu", bind_load},
                                {"st", bind_store},
                                {"atom", bind_atomic},
                                {"red", bind_atomic}};

}  // namespace

std::span<const Family> memory_instructions() { return kFamilies; }

}  // namespace tessera::emulator
