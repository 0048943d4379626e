// The families of instructions. Each file binds its own, by the first part of their names.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string_view>

#include "tests/emulator/kernel.h"
#include "tests/emulator/kernel_builder.h"
#include "tests/emulator/statement.h"

namespace tessera::emulator {

// Sets the handler and what it needs; leaves the handler null where a variant is not known.
using Binder = void (*)(Instruction& instruction, const Statement& statement,
                        KernelBuilder& builder);

struct Family {
  std::string_view name;
  Binder bind;
};

std::span<const Family> control_instructions();
std::span<const Family> integer_instructions();
std::span<const Family> bit_instructions();
std::span<const Family> float_instructions();
std::span<const Family> comparison_instructions();
std::span<const Family> conversion_instructions();
std::span<const Family> move_instructions();
std::span<const Family> memory_instructions();
std::span<const Family> warp_instructions();
std::span<const Family> barrier_instructions();
std::span<const Family> mbarrier_instructions();
std::span<const Family> copy_instructions();
std::span<const Family> matrix_instructions();
std::span<const Family> wgmma_instructions();

// Binds a statement to its handler.
void bind_instruction(Instruction& instruction, const Statement& statement, KernelBuilder& builder);

}  // namespace tessera::emulator
