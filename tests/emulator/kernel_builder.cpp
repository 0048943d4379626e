// Gives the registers of a kernel their places and binds its statements.
// SPDX-License-Identifier: MIT
#include "tests/emulator/kernel_builder.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "tests/emulator/instructions/families.h"
#include "tests/emulator/types.h"

namespace tessera::emulator {
namespace {

// Dynamic shared memory begins behind the static variables at a multiple of this, as much as any
// kernel asks for (128-byte swizzles repeat every 1,024 bytes).
constexpr int kDynamicSharedAlign = 1024;

int align_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

std::string without_comments(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t comment = std::min(text.find("//"), text.size());
    result += text.substr(0, comment);
    text.remove_prefix(comment);
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  return result;
}

}  // namespace

KernelBuilder::KernelBuilder(Kernel& kernel) : kernel_(kernel), scopes_(1) {
  kernel_.register_bytes = 64;  // no register has offset 0, so 0 can mean none
}

Slot KernelBuilder::new_slot(int bytes) {
  const bool is_predicate = bytes == 1;
  const uint32_t align = is_predicate ? 4 : 64;
  const uint32_t at = (kernel_.register_bytes + align - 1) / align * align;
  kernel_.register_bytes = at + (is_predicate ? 4 : static_cast<uint32_t>(kWarpLanes * bytes));
  return {at, static_cast<uint8_t>(bytes)};
}

const Slot* KernelBuilder::find_register(std::string_view name) const {
  const std::string key(name);
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->find(key); found != scope->end()) return &found->second;
  }
  return nullptr;
}

Slot KernelBuilder::slot(std::string_view name, int bytes) {
  if (const Slot* declared = find_register(name)) return *declared;
  const auto [entry, is_new] = constants_.try_emplace({std::string(name), bytes});
  if (is_new) {
    Constant constant = constant_of(name);
    entry->second = constant.slot = new_slot(bytes);
    if (bytes == 1) constant.value = constant.value != 0 ? kAllLanes : 0;
    kernel_.constants.push_back(constant);
  }
  return entry->second;
}

// What a name that is no register stands for.
Constant KernelBuilder::constant_of(std::string_view name) const {
  if (is_literal(name)) return {.value = parse_literal(name)};
  if (name.starts_with('%')) {
    const SpecialRegister* special = find_special_register(name);
    if (special == nullptr) throw std::runtime_error("unknown register " + std::string(name));
    return {.base = Constant::Base::special, .special = special};
  }
  const size_t plus = name.find('+');
  const std::string variable(name.substr(0, plus));
  const uint64_t offset =
      plus == std::string_view::npos ? 0 : parse_literal(trim(name.substr(plus + 1)));
  const auto at = [&](Constant::Base base, int first) {
    return Constant{.base = base, .value = static_cast<uint64_t>(first) + offset};
  };
  if (const auto found = shared_.find(variable); found != shared_.end()) {
    return at(Constant::Base::shared_memory, found->second);
  }
  if (const auto found = local_.find(variable); found != local_.end()) {
    return at(Constant::Base::local_memory, found->second);
  }
  for (const Parameter& parameter : kernel_.parameters) {
    if (parameter.name == variable) return at(Constant::Base::parameters, parameter.offset);
  }
  if (kernel_.module != nullptr) {
    const auto found = kernel_.module->globals.find(variable);
    if (found != kernel_.module->globals.end()) {
      return {.value = reinterpret_cast<uint64_t>(found->second.data()) + offset};
    }
  }
  throw std::runtime_error("unknown name " + std::string(name));
}

void KernelBuilder::build() {
  declare_shared();
  take_statements();
  if (kernel_.code.empty() || kernel_.code.back().flow != Flow::exit ||
      kernel_.code.back().guard >= 0) {
    bind(parse_statement("ret"));
  }
  resolve_branches();
}

// Static shared memory comes first, since the place of the dynamic part follows from its size.
void KernelBuilder::declare_shared() {
  const std::string_view body = kernel_.body;
  for (size_t at = 0; (at = body.find(".shared .align", at)) != std::string_view::npos;) {
    const size_t line = body.rfind('\n', at);
    const size_t end = body.find(';', at);
    const size_t begin = line == std::string_view::npos ? 0 : line;
    if (trim(body.substr(begin, at - begin)).empty()) {
      declare_variable(body.substr(at, end - at), /*is_shared=*/true);
    }
    at = end;
  }
  if (kernel_.module == nullptr || kernel_.module->dynamic_shared.empty()) return;
  kernel_.static_shared_bytes = align_up(kernel_.static_shared_bytes, kDynamicSharedAlign);
  for (const std::string& name : kernel_.module->dynamic_shared) {
    shared_[name] = kernel_.static_shared_bytes;
  }
}

void KernelBuilder::take_statements() {
  const std::string text = without_comments(kernel_.body);
  size_t at = 0;
  while ((at = text.find_first_not_of(" \t\n\r", at)) != std::string::npos) {
    if (text[at] == '{' || text[at] == '}') {
      if (text[at] == '{') {
        scopes_.emplace_back();
      } else {
        scopes_.pop_back();
      }
      ++at;
      continue;
    }
    if (text.compare(at, 5, ".loc ") == 0 || text.compare(at, 5, ".loc\t") == 0) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    const size_t end = std::min(text.find_first_of(":;", at), text.size());
    if (end < text.size() && text[end] == ':' && text[at] != '.' &&
        text.find_first_of(" \t\n", at) > end) {
      if (text.compare(end, 2, "::") != 0) {
        labels_[text.substr(at, end - at)] = static_cast<int>(kernel_.code.size());
        at = end + 1;
        continue;
      }
    }
    const size_t semicolon = std::min(text.find(';', at), text.size());
    take_statement(std::string_view(text).substr(at, semicolon - at));
    at = semicolon + 1;
  }
}

void KernelBuilder::take_statement(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.starts_with(".pragma") || text.starts_with(".shared")) return;
  if (text.starts_with(".reg")) return declare_registers(trim(text.substr(4)));
  if (text.starts_with(".local")) return declare_variable(text, /*is_shared=*/false);
  if (text.starts_with('.')) throw std::runtime_error("unknown directive " + std::string(text));
  bind(parse_statement(text));
}

// ".reg .b32 %r<100>" declares %r0 to %r99; ".reg .pred p, q" two of their own names.
void KernelBuilder::declare_registers(std::string_view declaration) {
  const size_t space = declaration.find_first_of(" \t");
  const auto type = parse_type(declaration.substr(1, space - 1));
  if (!type) throw std::runtime_error("unknown type in .reg " + std::string(declaration));
  const int bytes = *type == Type::pred ? 1 : std::max(2, bytes_of(*type));
  for (const std::string_view name : split(declaration.substr(space), ',')) {
    const size_t count = name.find('<');
    if (count == std::string_view::npos) {
      scopes_.back()[std::string(name)] = new_slot(bytes);
      continue;
    }
    const std::string prefix(name.substr(0, count));
    for (int i = 0; i < std::atoi(name.data() + count + 1); ++i) {
      scopes_.back()[prefix + std::to_string(i)] = new_slot(bytes);
    }
  }
}

void KernelBuilder::declare_variable(std::string_view declaration, bool is_shared) {
  const Variable variable = parse_variable(declaration);
  int& end = is_shared ? kernel_.static_shared_bytes : kernel_.local_bytes;
  end = align_up(end, variable.align);
  (is_shared ? shared_ : local_)[variable.name] = end;
  end += static_cast<int>(variable.bytes());
}

void KernelBuilder::bind(const Statement& statement) {
  Instruction instruction;
  instruction.text = statement.text;
  if (!statement.guard.empty()) {
    instruction.guard = static_cast<int>(slot(statement.guard, 1).at);
    instruction.is_guard_negated = statement.is_guard_negated;
  }
  bind_instruction(instruction, statement, *this);
  if (instruction.flow == Flow::branch) {
    branches_.emplace_back(kernel_.code.size(), statement.operand(0).name());
  }
  kernel_.code.push_back(std::move(instruction));
}

void KernelBuilder::resolve_branches() {
  for (const auto& [index, label] : branches_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) throw std::runtime_error("unknown label " + label);
    kernel_.code[index].target = found->second;
  }
  for (const auto& [label, index] : labels_) {
    if (static_cast<size_t>(index) < kernel_.code.size()) {
      kernel_.code[static_cast<size_t>(index)].is_target = true;
    }
  }
}

void build_kernel(Kernel& kernel) {
  if (kernel.is_built) return;
  try {
    KernelBuilder(kernel).build();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("kernel " + kernel.name + ": " + error.what());
  }
  kernel.is_built = true;
}

}  // namespace tessera::emulator
