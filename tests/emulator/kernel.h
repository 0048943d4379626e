// A kernel as the emulator runs it: instructions bound to functions, and the layout of its
// registers.
//
// A virtual register of PTX is 32 values side by side, one per lane of a warp, at a fixed offset of
// the warp's register file; a predicate is a mask of 32 bits. Literals, special registers and
// addresses of variables are registers as well, which are written once when a warp starts. So an
// instruction reads all its operands in the same way.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::emulator {

class Warp;
struct Instruction;
struct Module;

constexpr int kWarpLanes = 32;
constexpr uint32_t kAllLanes = ~0u;

// Executes an instruction for the lanes whose bits are set.
using Handler = void (*)(Warp& warp, const Instruction& instruction, uint32_t lanes);

// What an instruction means for the lanes that are about to execute it.
enum class Flow : uint8_t {
  plain,
  branch,
  exit,
  converge,  // waits until the lanes of its member mask are here
  barrier,   // waits until all lanes are here; the warp may then wait for others
};

// Where a register lies in the register file.
struct Slot {
  uint32_t at = 0;
  uint8_t bytes = 0;  // 1: a predicate
};

struct Instruction {
  Handler handler = nullptr;     // null: not known, which is an error only if it is executed
  std::array<uint32_t, 5> at{};  // its registers, in the order that the handler expects
  std::shared_ptr<const void> details_of_handler;  // more of them, and constants
  int target = -1;                                 // of a branch: index of an instruction
  int guard = -1;                                  // offset of the guard predicate; -1: none
  bool is_guard_negated = false;
  bool is_target = false;  // branches come here, so groups of lanes may meet
  Flow flow = Flow::plain;
  int members = -1;  // of Flow::converge: offset of the mask; -1: all lanes
  std::string text;

  // Each family of instructions has a struct of its own.
  template <class Details>
  const Details& details() const {
    return *static_cast<const Details*>(details_of_handler.get());
  }
  template <class Details>
  void set_details(Details details) {
    details_of_handler = std::make_shared<const Details>(std::move(details));
  }
};

struct SpecialRegister {  // %tid.x and its kind
  std::string_view name;
  uint64_t (*value)(const Warp& warp, uint32_t lane);
};
const SpecialRegister* find_special_register(std::string_view name);

// A register that has its value when a warp starts.
struct Constant {
  enum class Base : uint8_t { none, special, shared_memory, parameters, local_memory };
  Slot slot{};
  Base base = Base::none;
  const SpecialRegister* special = nullptr;
  uint64_t value = 0;  // added to the base
};

struct Parameter {
  std::string name;
  int offset = 0;
  int bytes = 0;
};

struct Kernel {
  std::string name;  // as a person would write it
  Module* module = nullptr;
  std::string_view body;  // the PTX between its braces
  std::vector<Parameter> parameters;
  int parameter_bytes = 0;
  int max_threads = 1024;

  // What build_kernel adds when the kernel is launched first.
  bool is_built = false;
  std::vector<Instruction> code;
  std::vector<Constant> constants;
  uint32_t register_bytes = 0;  // of a warp
  int static_shared_bytes = 0;
  int local_bytes = 0;  // of a lane
};

}  // namespace tessera::emulator
