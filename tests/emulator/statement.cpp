// Takes statements of PTX apart.
// SPDX-License-Identifier: MIT
#include "tests/emulator/statement.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace tessera::emulator {
namespace {

constexpr std::string_view kSpace = " \t\n\r";

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Reads operands from left to right; brackets may hold braces: [%rd1, {%r1, %r2}].
class OperandReader {
 public:
  std::vector<Operand> read(std::string_view text) {
    for (const char c : text) {
      switch (c) {
        case ' ':
        case '\t':
        case '\r':
        case '\n': break;
        case ',': finish_name(); break;
        case '|':
          finish_name();
          follows_bar_ = true;
          break;
        case '[':
          finish_name();
          in_address_ = true;
          break;
        case ']':
          finish_name();
          in_address_ = false;
          break;
        case '{':
          finish_name();
          operands_.push_back({.is_list = true});
          in_list_ = true;
          break;
        case '}':
          finish_name();
          in_list_ = false;
          break;
        default: name_ += c;
      }
    }
    finish_name();
    return std::move(operands_);
  }

 private:
  void finish_name() {
    if (name_.empty()) return;
    if (in_list_) {
      operands_.back().names.push_back(std::move(name_));
    } else {
      Operand operand{.is_address = in_address_, .is_second = follows_bar_};
      if (name_[0] == '!') {
        operand.is_negated = true;
        name_.erase(0, 1);
      }
      const size_t plus = name_.find('+');
      if (in_address_ && plus != std::string::npos) {
        operand.offset = std::strtoll(name_.c_str() + plus + 1, nullptr, 0);
        name_.resize(plus);
      }
      operand.names.push_back(std::move(name_));
      operands_.push_back(std::move(operand));
    }
    follows_bar_ = false;
    name_.clear();
  }

  std::vector<Operand> operands_;
  std::string name_;
  bool in_list_ = false, in_address_ = false, follows_bar_ = false;
};

}  // namespace

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view piece = trim(text.substr(0, end));
    if (!piece.empty()) pieces.push_back(piece);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

bool is_literal(std::string_view text) {
  return !text.empty() && (is_digit(text[0]) || (text[0] == '-' && text.size() > 1));
}

uint64_t parse_literal(std::string_view text) {
  const std::string value(text);
  const bool is_bits = value.size() > 2 && value[0] == '0' &&
                       std::string_view("fFdD").find(value[1]) != std::string::npos;
  if (is_bits) return std::strtoull(value.c_str() + 2, nullptr, 16);
  if (value[0] == '-') return static_cast<uint64_t>(std::strtoll(value.c_str(), nullptr, 0));
  return std::strtoull(value.c_str(), nullptr, 0);
}

bool Statement::has(std::string_view part) const {
  return std::find(parts.begin(), parts.end(), part) != parts.end();
}

const std::string& Statement::part(size_t index) const {
  static const std::string none;
  return index < parts.size() ? parts[index] : none;
}

const Operand& Statement::operand(size_t index) const {
  if (index >= operands.size()) throw std::runtime_error("operands are missing in " + text);
  return operands[index];
}

int64_t Statement::number(size_t index) const {
  const std::string& name = operand(index).name();
  if (!is_literal(name)) throw std::runtime_error(name + " is not a number in " + text);
  return static_cast<int64_t>(parse_literal(name));
}

Statement parse_statement(std::string_view text) {
  Statement statement;
  std::string_view rest = trim(text);
  statement.text = rest;
  const auto take_word = [&] {
    const size_t end = std::min(rest.find_first_of(kSpace), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest = trim(rest.substr(end));
    return word;
  };
  if (rest.starts_with('@')) {
    std::string_view guard = take_word().substr(1);
    statement.is_guard_negated = guard.starts_with('!');
    statement.guard = guard.substr(statement.is_guard_negated ? 1 : 0);
  }
  for (std::string_view opcode = take_word(); const std::string_view part : split(opcode, '.')) {
    statement.parts.emplace_back(part);
  }
  statement.operands = OperandReader().read(rest);
  return statement;
}

}  // namespace tessera::emulator
