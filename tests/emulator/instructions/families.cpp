// Finds the family of an instruction; and those that only steer lanes, or do nothing here.
// SPDX-License-Identifier: MIT
#include "tests/emulator/instructions/families.h"

#include <map>

#include "tests/emulator/warp.h"

namespace tessera::emulator {
namespace {

void do_nothing(Warp&, const Instruction&, uint32_t) {}

void bind_branch(Instruction& instruction, const Statement&, KernelBuilder&) {
  instruction.flow = Flow::branch;
}

void bind_exit(Instruction& instruction, const Statement&, KernelBuilder&) {
  instruction.flow = Flow::exit;
}

void bind_trap(Instruction& instruction, const Statement&, KernelBuilder&) {
  instruction.handler = [](Warp& warp, const Instruction& self, uint32_t) {
    warp.fault(self, FaultKind::launch_failure, "trap");
  };
}

void bind_nothing(Instruction& instruction, const Statement&, KernelBuilder&) {
  instruction.handler = do_nothing;
}

void bind_sleep(Instruction& instruction, const Statement&, KernelBuilder&) {
  instruction.handler = [](Warp& warp, const Instruction&, uint32_t) { warp.wait_a_turn(); };
}

// Fences and the order of memory: a warp's accesses happen in program order here, so a fence has
// nothing to do, and one that is missing cannot be noticed. A grid begins when the one before it
// has ended, so programmatic dependent launch has nothing to do either.
constexpr Family kFamilies[] = {
    {"bra", bind_branch},
    {"ret", bind_exit},
    {"exit", bind_exit},
    {"trap", bind_trap},
    {"nanosleep", bind_sleep},
    {"membar", bind_nothing},
    {"fence", bind_nothing},
    {"prefetch", bind_nothing},
    {"prefetchu", bind_nothing},
    {"applypriority", bind_nothing},
    {"griddepcontrol", bind_nothing},
    {"setmaxnreg", bind_nothing},
};

std::map<std::string_view, Binder> all_families() {
  std::map<std::string_view, Binder> binders;
  for (const auto families :
       {control_instructions(), integer_instructions(), bit_instructions(), float_instructions(),
        comparison_instructions(), conversion_instructions(), move_instructions(),
        memory_instructions(), warp_instructions(), barrier_instructions(), mbarrier_instructions(),
        copy_instructions(), matrix_instructions(), wgmma_instructions()}) {
    for (const Family& family : families) binders.emplace(family.name, family.bind);
  }
  return binders;
}

}  // namespace

std::span<const Family> control_instructions() { return kFamilies; }

void bind_instruction(Instruction& instruction, const Statement& statement,
                      KernelBuilder& builder) {
  static const std::map<std::string_view, Binder> binders = all_families();
  const auto found = binders.find(statement.part(0));
  if (found != binders.end()) found->second(instruction, statement, builder);
}

}  // namespace tessera::emulator
