// A module of PTX: what nvcc makes of one source file.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/kernel.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/statement.h"

namespace tessera::emulator {

// The declaration of a variable: ".shared .align 4 .b8 name[256]".
struct Variable {
  std::string name;
  int align = 1;
  int element_bytes = 1;
  size_t num_elements = 1;

  size_t bytes() const { return static_cast<size_t>(element_bytes) * num_elements; }
};
Variable parse_variable(std::string_view declaration);

struct Module {
  std::map<std::string, Kernel, std::less<>> kernels;        // by their mangled names
  std::map<std::string, DeviceMemory, std::less<>> globals;  // with their first values
  std::vector<std::string> dynamic_shared;  // names of the one array whose size a launch gives
};

// Finds kernels and variables. `text` must outlive the module: bodies are parsed when a kernel is
// launched first, since most kernels of a program never are.
std::unique_ptr<Module> parse_module(std::string_view text);

// Parses the body of a kernel. Throws std::runtime_error if it uses what is not declared.
void build_kernel(Kernel& kernel);

}  // namespace tessera::emulator
