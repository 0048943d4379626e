// Finds the kernels and variables of a module, without looking into kernels.
// SPDX-License-Identifier: MIT
#include "tests/emulator/module.h"

#include <cxxabi.h>

#include <cctype>
#include <cstring>
#include <stdexcept>

#include "tests/emulator/types.h"

namespace tessera::emulator {
namespace {

int align_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// "void tessera::kernel<int>(Params)" becomes "tessera::kernel<int>".
std::string readable(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? name.get() : mangled;
  if (text.starts_with("void ")) text.erase(0, 5);
  if (text.ends_with(')')) {
    int depth = 0;
    for (size_t i = text.size(); i-- > 0;) {
      depth += text[i] == ')' ? 1 : text[i] == '(' ? -1 : 0;
      if (depth == 0) return text.substr(0, i);
    }
  }
  return text;
}

// The position of the brace that closes the one at `open`.
size_t closing_brace(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  throw std::runtime_error("PTX ends within braces");
}

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : text_(text) {}

  std::unique_ptr<Module> parse() {
    while (skip_space()) {
      const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
      if (line.starts_with(".version") || line.starts_with(".target") ||
          line.starts_with(".address_size") || line.starts_with(".file")) {
        at_ += line.size();
      } else if (line.find(".entry") != std::string_view::npos) {
        take_kernel();
      } else if (line.find(".func") != std::string_view::npos) {
        skip_function();
      } else {
        const size_t end = text_.find(';', at_);
        if (end == std::string_view::npos) break;
        take_variable(text_.substr(at_, end - at_));
        at_ = end + 1;
      }
    }
    return std::move(module_);
  }

 private:
  // False at the end.
  bool skip_space() {
    while (at_ < text_.size()) {
      if (std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
        ++at_;
      } else if (text_.substr(at_).starts_with("//")) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else {
        return true;
      }
    }
    return false;
  }

  void take_kernel() {
    const size_t name = text_.find(".entry", at_) + 6;
    const size_t parameters = text_.find('(', name);
    const size_t body = text_.find('{', parameters);
    const std::string mangled(trim(text_.substr(name, parameters - name)));
    Kernel& kernel = module_->kernels[mangled];
    kernel.name = readable(mangled);
    kernel.module = module_.get();
    const size_t end = text_.find(')', parameters);
    for (const auto piece : split(text_.substr(parameters + 1, end - parameters - 1), ',')) {
      const Variable variable = parse_variable(piece);
      kernel.parameter_bytes = align_up(kernel.parameter_bytes, variable.align);
      const int bytes = static_cast<int>(variable.bytes());
      kernel.parameters.push_back({variable.name, kernel.parameter_bytes, bytes});
      kernel.parameter_bytes += bytes;
    }
    const std::string_view attributes = text_.substr(end, body - end);
    if (const size_t most = attributes.find(".maxntid"); most != std::string_view::npos) {
      kernel.max_threads = std::atoi(attributes.data() + most + 8);
    }
    const size_t close = closing_brace(text_, body);
    kernel.body = text_.substr(body + 1, close - body - 1);
    at_ = close + 1;
  }

  // Functions that are not inlined are not supported: a call of one is an unknown instruction.
  void skip_function() {
    const size_t end = text_.find_first_of("{;", at_);
    at_ = (text_[end] == ';' ? end : closing_brace(text_, end)) + 1;
  }

  void take_variable(std::string_view statement) {
    const size_t equals = statement.find('=');
    const Variable variable = parse_variable(trim(statement.substr(0, equals)));
    if (statement.find(".shared") != std::string_view::npos) {
      module_->dynamic_shared.push_back(variable.name);
      return;
    }
    DeviceMemory memory(variable.bytes());
    std::memset(memory.data(), 0, variable.bytes());
    if (equals != std::string_view::npos) {
      fill(memory.data(), variable, statement.substr(equals + 1));
    }
    module_->globals.emplace(variable.name, std::move(memory));
  }

  static void fill(char* memory, const Variable& variable, std::string_view values) {
    values = trim(values);
    if (values.starts_with('{')) values = values.substr(1, values.find('}') - 1);
    size_t index = 0;
    for (const std::string_view value : split(values, ',')) {
      if (!is_literal(value)) {
        throw std::runtime_error(variable.name + " begins with the address of " +
                                 std::string(value) + ", which the emulator does not support");
      }
      const uint64_t bits = parse_literal(value);
      const auto bytes = static_cast<size_t>(variable.element_bytes);
      std::memcpy(memory + index++ * bytes, &bits, bytes);
    }
  }

  std::string_view text_;
  size_t at_ = 0;
  std::unique_ptr<Module> module_ = std::make_unique<Module>();
};

}  // namespace

Variable parse_variable(std::string_view declaration) {
  Variable variable;
  bool is_aligned = false;
  const size_t bracket = declaration.find('[');
  if (bracket != std::string_view::npos) {
    variable.num_elements = std::strtoull(declaration.data() + bracket + 1, nullptr, 10);
    declaration = declaration.substr(0, bracket);
  }
  std::string_view previous;
  std::string text(declaration);
  for (char& c : text) c = std::isspace(static_cast<unsigned char>(c)) != 0 ? ' ' : c;
  for (const std::string_view word : split(text, ' ')) {
    if (previous == ".align") {
      variable.align = std::atoi(word.data());
      is_aligned = true;
    } else if (const auto type = parse_type(word.substr(1)); word[0] == '.' && type) {
      variable.element_bytes = bytes_of(*type);
    }
    variable.name = word;
    previous = word;
  }
  if (!is_aligned) variable.align = variable.element_bytes;
  return variable;
}

std::unique_ptr<Module> parse_module(std::string_view text) { return ModuleParser(text).parse(); }

}  // namespace tessera::emulator
