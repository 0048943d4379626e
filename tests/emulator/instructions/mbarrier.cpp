// The state of an mbarrier, and the instructions on it.
// SPDX-License-Identifier: MIT
#include "tests/emulator/instructions/mbarrier.h"

#include <cstring>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/instructions/lanes.h"
#include "tests/emulator/launch.h"

namespace tessera::emulator {
namespace {

constexpr int kCountBits = 20, kByteBits = 23;
constexpr int64_t kByteBias = int64_t{1} << (kByteBits - 1);

enum class Action : uint8_t {
  init,
  invalidate,
  arrive,
  arrive_and_expect,
  expect,
  complete,
  test,
};

struct MBarrierDetails {
  Action action;
  Slot address;
  uint64_t offset = 0;
  Slot value;              // count, bytes or parity; bytes 0: a count of 1
  uint32_t predicate = 0;  // result of a test
};

void use_mbarrier(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  const auto& details = instruction.details<MBarrierDetails>();
  uint32_t passed = 0;
  for_each_lane(lanes, [&](int lane) {
    const uint64_t address = warp.read(details.address, lane) + details.offset;
    const Space space = details.address.bytes == 4 ? Space::shared : Space::generic;
    MBarrier barrier(warp.memory(instruction, space, address, 8), warp.launch());
    const int value =
        details.value.bytes == 0 ? 1 : static_cast<int>(warp.read(details.value, lane));
    switch (details.action) {
      case Action::init:
        if (value <= 0 || value > MBarrier::kMaxCount) {
          warp.fault(instruction, FaultKind::launch_failure,
                     "an mbarrier for " + std::to_string(value) + " arrivals");
        }
        barrier.init(value);
        break;
      case Action::invalidate: barrier.invalidate(); break;
      case Action::arrive: arrive(warp, instruction, barrier, value, 0); break;
      case Action::arrive_and_expect: arrive(warp, instruction, barrier, 1, value); break;
      case Action::expect: barrier.expect_bytes(value); break;
      case Action::complete: barrier.complete_bytes(static_cast<size_t>(value)); break;
      case Action::test: passed |= uint32_t{barrier.parity() != (value & 1)} << lane;
    }
  });
  if (details.action != Action::test) return;
  warp.set_predicate(details.predicate, lanes, passed);
  if (passed != lanes) warp.wait_a_turn();
}

void bind_mbarrier(Instruction& instruction, const Statement& statement, KernelBuilder& builder) {
  const std::string& name = statement.part(1);
  MBarrierDetails details{};
  size_t address = 0;
  if (name == "init") {
    details.action = Action::init;
  } else if (name == "inval") {
    details.action = Action::invalidate;
  } else if (name == "expect_tx" || name == "complete_tx") {
    details.action = name == "expect_tx" ? Action::expect : Action::complete;
  } else if (name == "arrive") {
    // The state that an arrival returns is not kept: a wait by parity needs none.
    if (!statement.operand(0).is_absent() || statement.has("noComplete")) return;
    details.action = statement.has("expect_tx") ? Action::arrive_and_expect : Action::arrive;
    address = 1;
  } else if ((name == "test_wait" || name == "try_wait") && statement.has("parity")) {
    details.action = Action::test;
    details.predicate = builder.slot(statement.operand(0), 1).at;
    address = 1;
  } else {
    return;
  }
  details.address = builder.slot(statement.operand(address), 8);
  details.offset = static_cast<uint64_t>(statement.operand(address).offset);
  if (statement.operands.size() > address + 1) {
    details.value = builder.slot(statement.operand(address + 1), 4);
  }
  instruction.set_details(details);
  instruction.handler = use_mbarrier;
}

constexpr Family kFamilies[] = {{"mbarrier", bind_mbarrier}};

}  // namespace

MBarrier::State MBarrier::load() const {
  uint64_t bits;
  std::memcpy(&bits, at_, sizeof bits);
  const uint64_t counts = (1u << kCountBits) - 1;
  State state;
  state.pending = static_cast<int>(bits & counts);
  state.expected = static_cast<int>(bits >> kCountBits & counts);
  state.bytes = static_cast<int64_t>(bits >> 2 * kCountBits & ((1u << kByteBits) - 1)) - kByteBias;
  state.parity = static_cast<int>(bits >> 63);
  return state;
}

void MBarrier::store(State state) {
  if (state.pending == 0 && state.bytes == 0) {
    state.parity ^= 1;
    state.pending = state.expected;
  }
  const uint64_t bits = static_cast<uint64_t>(state.parity) << 63 |
                        static_cast<uint64_t>(state.bytes + kByteBias) << 2 * kCountBits |
                        static_cast<uint64_t>(state.expected) << kCountBits |
                        static_cast<uint64_t>(state.pending);
  std::memcpy(at_, &bits, sizeof bits);
  ++launch_->num_events;
}

void MBarrier::init(int count) {
  store({.parity = 0, .pending = count, .expected = count, .bytes = 0});
}

void MBarrier::invalidate() { std::memset(at_, 0xee, sizeof(uint64_t)); }

int MBarrier::parity() const { return load().parity; }
int MBarrier::expected() const { return load().expected; }
int MBarrier::pending() const { return load().pending; }

void MBarrier::arrive(int count, int64_t expected_bytes) {
  State state = load();
  state.pending -= count;
  state.bytes += expected_bytes;
  store(state);
}

void MBarrier::expect_bytes(int64_t bytes) {
  State state = load();
  state.bytes += bytes;
  store(state);
}

void MBarrier::complete_bytes(size_t bytes) {
  State state = load();
  state.bytes -= static_cast<int64_t>(bytes);
  store(state);
}

void MBarrier::expect_another() {
  State state = load();
  ++state.pending;
  store(state);
}

MBarrier mbarrier_at(Warp& warp, const Instruction& instruction, uint32_t address) {
  return {warp.shared(instruction, address, 8), warp.launch()};
}

MBarrier mbarrier_at(Warp& warp, const Instruction& instruction, Slot address, int lane) {
  return mbarrier_at(warp, instruction, static_cast<uint32_t>(warp.read(address, lane)));
}

void arrive(Warp& warp, const Instruction& instruction, MBarrier barrier, int count,
            int64_t expected_bytes) {
  if (count > barrier.pending()) {
    warp.fault(instruction, FaultKind::launch_failure,
               std::to_string(count) + " arrivals at an mbarrier that waits for " +
                   std::to_string(barrier.pending()) + " of " + std::to_string(barrier.expected()));
  }
  barrier.arrive(count, expected_bytes);
}

std::span<const Family> mbarrier_instructions() { return kFamilies; }

}  // namespace tessera::emulator
