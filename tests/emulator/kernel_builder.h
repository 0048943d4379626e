// Turns the body of a kernel into instructions: gives registers their places and binds each
// statement to the function that executes it.
// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/emulator/kernel.h"
#include "tests/emulator/module.h"
#include "tests/emulator/statement.h"

namespace tessera::emulator {

class KernelBuilder {
 public:
  explicit KernelBuilder(Kernel& kernel);
  void build();

  // The register that holds this operand: a register of the kernel, or one made for a literal, a
  // special register or the address of a variable, `bytes` wide.
  Slot slot(std::string_view name, int bytes);
  Slot slot(const Operand& operand, int bytes) { return slot(operand.name(), bytes); }

 private:
  void declare_shared();
  void take_statements();
  void take_statement(std::string_view text);
  void declare_registers(std::string_view declaration);
  void declare_variable(std::string_view declaration, bool is_shared);
  void bind(const Statement& statement);
  void resolve_branches();
  const Slot* find_register(std::string_view name) const;
  Constant constant_of(std::string_view name) const;
  Slot new_slot(int bytes);

  Kernel& kernel_;
  // Registers by name, one map for each block of braces around the statement.
  std::vector<std::unordered_map<std::string, Slot>> scopes_;
  std::map<std::pair<std::string, int>, Slot> constants_;  // by name and width
  std::unordered_map<std::string, int> shared_, local_;    // offsets of variables
  std::unordered_map<std::string, int> labels_;
  std::vector<std::pair<size_t, std::string>> branches_;  // instructions and their labels
};

}  // namespace tessera::emulator
