// How handlers walk over lanes.
// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "tests/emulator/kernel.h"
#include "tests/emulator/kernel_builder.h"
#include "tests/emulator/types.h"
#include "tests/emulator/warp.h"

namespace tessera::emulator {

template <class F>
void for_each_lane(uint32_t lanes, const F& f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kWarpLanes; ++lane) f(lane);
    return;
  }
  for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
}

// The handler of an instruction that computes each lane's result from that lane's operands:
// elementwise<Add, float, float, float> is add.f32. F has no state.
template <class F, class R, class... A>
void elementwise(Warp& warp, const Instruction& instruction, uint32_t lanes) {
  [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    R* const out = warp.reg<R>(instruction.at[0]);
    const std::tuple<const A*...> in{warp.reg<A>(instruction.at[1 + kIndex])...};
    const auto compute = [&](int lane) {
      out[lane] = static_cast<R>(F{}(std::get<kIndex>(in)[lane]...));
    };
    if (lanes == kAllLanes) {
      // Lanes do not depend on each other, even where the result is an operand.
      _Pragma("GCC ivdep") for (int lane = 0; lane < kWarpLanes; ++lane) compute(lane);
    } else {
      for_each_lane(lanes, compute);
    }
  }
  (std::index_sequence_for<A...>{});
}

// Gives an instruction its registers in the order of the statement, each `bytes` wide.
inline void use_operands(Instruction& instruction, const Statement& statement,
                         KernelBuilder& builder, size_t count, int bytes) {
  for (size_t i = 0; i < count; ++i) {
    instruction.at[i] = builder.slot(statement.operand(i), bytes).at;
  }
}

// Calls make(T{}) with the C++ type of an integer type; null for other types.
template <class F>
Handler for_integer_type(Type type, const F& make) {
  switch (type) {
    case Type::u16: return make(uint16_t{});
    case Type::s16: return make(int16_t{});
    case Type::u32: return make(uint32_t{});
    case Type::s32: return make(int32_t{});
    case Type::u64: return make(uint64_t{});
    case Type::s64: return make(int64_t{});
    default: return nullptr;
  }
}

inline int64_t sign_extend(uint64_t value, int bytes) {
  const int unused = 64 - 8 * bytes;
  return static_cast<int64_t>(value << unused) >> unused;
}

// The type that an opcode ends with; absent where it ends with something else.
inline std::optional<Type> last_type(const Statement& statement) {
  return parse_type(statement.parts.back());
}

}  // namespace tessera::emulator
