// Regular expressions of layer names: parsed to a small automaton whose states are all followed at
// once, so that no expression can take long.
// SPDX-License-Identifier: MIT
#include "model/formats/name_pattern.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr std::string_view kPrefix = "re:";
constexpr size_t kMaxPattern = 512;
constexpr int kMaxDepth = 32;

std::bitset<256> between(unsigned char low, unsigned char high) {
  std::bitset<256> bytes;
  for (unsigned c = low; c <= high; ++c) bytes.set(c);
  return bytes;
}

}  // namespace

// Builds the program from its end to its start: every part is told where to go on.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, std::string_view origin,
                   std::vector<NamePattern::Instruction>& program)
      : text_(text), origin_(origin), program_(program) {}

  int parse() {
    const int accept = add({.kind = NamePattern::Kind::accept});
    const Node whole = alternatives(0);
    if (at_ != text_.size()) refuse("an unmatched )");
    return link(whole, accept);
  }

 private:
  using Kind = NamePattern::Kind;
  using Instruction = NamePattern::Instruction;
  enum class Shape : uint8_t { leaf, sequence, choice, star, plus, optional };
  struct Node {
    Shape shape = Shape::sequence;
    Instruction leaf = {};
    std::vector<Node> parts = {};
  };

  [[noreturn]] void refuse(std::string_view what) const {
    fail(concat(origin_, "the pattern '", shown(text_), "' has ", what, " at character ", at_ + 1,
                ", which is not supported; list the names of the layers instead"));
  }
  bool has_next() const { return at_ < text_.size(); }
  char peek() const { return text_[at_]; }

  int add(const Instruction& instruction) {
    program_.push_back(instruction);
    return static_cast<int>(program_.size()) - 1;
  }

  Node alternatives(int depth) {
    if (depth > kMaxDepth) refuse("too many nested groups");
    Node choice{.shape = Shape::choice};
    choice.parts.push_back(sequence(depth));
    while (has_next() && peek() == '|') {
      ++at_;
      choice.parts.push_back(sequence(depth));
    }
    return choice.parts.size() == 1 ? std::move(choice.parts.front()) : std::move(choice);
  }

  Node sequence(int depth) {
    Node all;
    while (has_next() && peek() != '|' && peek() != ')') {
      Node part = atom(depth);
      while (has_next() && (peek() == '*' || peek() == '+' || peek() == '?')) {
        const char sign = text_[at_++];
        Node repeated{.shape = sign == '*'   ? Shape::star
                               : sign == '+' ? Shape::plus
                                             : Shape::optional};
        repeated.parts.push_back(std::move(part));
        part = std::move(repeated);
      }
      if (has_next() && peek() == '{') refuse("a count in braces");
      all.parts.push_back(std::move(part));
    }
    return all;
  }

  Node leaf(Kind kind, std::bitset<256> bytes = {}) const {
    return {.shape = Shape::leaf, .leaf = {.kind = kind, .bytes = bytes}};
  }

  Node atom(int depth) {
    const char c = text_[at_++];
    switch (c) {
      case '(': return group(depth);
      case '[': return leaf(Kind::byte, byte_class());
      case '^': return leaf(Kind::begin);
      case '$': return leaf(Kind::end);
      case '.': return leaf(Kind::byte, ~std::bitset<256>().set('\n'));
      case '\\': return leaf(Kind::byte, escape());
      case '*':
      case '+':
      case '?':
      case '{': --at_; refuse("nothing to repeat");
      default: return leaf(Kind::byte, std::bitset<256>().set(static_cast<unsigned char>(c)));
    }
  }

  Node group(int depth) {
    if (has_next() && peek() == '?') {
      if (text_.substr(at_, 2) != "?:") refuse("a group with ?");
      at_ += 2;
    }
    Node inner = alternatives(depth + 1);
    if (!has_next()) refuse("a group without its )");
    ++at_;
    return inner;
  }

  std::bitset<256> escape() {
    if (!has_next()) refuse("a single backslash");
    const char c = text_[at_++];
    const std::bitset<256> digits = between('0', '9');
    const std::bitset<256> word =
        digits | between('a', 'z') | between('A', 'Z') | std::bitset<256>().set('_');
    if (c == 'd') return digits;
    if (c == 'w') return word;
    if (word.test(static_cast<unsigned char>(c))) {
      --at_;
      refuse("an escape of a letter or digit");
    }
    return std::bitset<256>().set(static_cast<unsigned char>(c));
  }

  std::bitset<256> byte_class() {
    std::bitset<256> bytes;
    const bool is_negated = has_next() && peek() == '^';
    if (is_negated) ++at_;
    bool is_first = true;
    while (has_next() && (peek() != ']' || is_first)) {
      is_first = false;
      const char c = text_[at_++];
      if (c == '\\') {
        bytes |= escape();
      } else if (at_ + 1 < text_.size() && peek() == '-' && text_[at_ + 1] != ']') {
        const char last = text_[at_ + 1];
        at_ += 2;
        bytes |= between(static_cast<unsigned char>(c), static_cast<unsigned char>(last));
      } else {
        bytes.set(static_cast<unsigned char>(c));
      }
    }
    if (!has_next()) refuse("a class without its ]");
    ++at_;
    return is_negated ? ~bytes : bytes;
  }

  // The first instruction of a node that goes on at `next`.
  int link(const Node& node, int next) {
    switch (node.shape) {
      case Shape::leaf: {
        Instruction instruction = node.leaf;
        instruction.next = next;
        return add(instruction);
      }
      case Shape::sequence:
        for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) {
          next = link(*part, next);
        }
        return next;
      case Shape::choice: {
        int first = link(node.parts.back(), next);
        for (size_t i = node.parts.size() - 1; i-- > 0;) {
          const int other = link(node.parts[i], next);
          first = add({.kind = Kind::split, .next = other, .other = first});
        }
        return first;
      }
      case Shape::star:
      case Shape::plus: {
        const int loop = add({.kind = Kind::split, .next = next, .other = next});
        const int body = link(node.parts.front(), loop);
        program_[static_cast<size_t>(loop)].other = body;
        return node.shape == Shape::star ? loop : body;
      }
      case Shape::optional: {
        const int body = link(node.parts.front(), next);
        return add({.kind = Kind::split, .next = body, .other = next});
      }
    }
    return next;
  }

  std::string_view text_;
  std::string_view origin_;
  std::vector<NamePattern::Instruction>& program_;
  size_t at_ = 0;
};

NamePattern::NamePattern(std::string_view text, std::string_view origin) {
  if (text.size() > kMaxPattern) {
    fail(concat(origin, "the pattern '", shown(text), "' has ", text.size(),
                " characters; at most ", kMaxPattern, " are read"));
  }
  if (text.empty() || text == kPrefix) {
    fail(concat(origin, "a pattern of layers is empty; name the layers, or leave it out"));
  }
  if (!text.starts_with(kPrefix)) {
    components_ = text;
    return;
  }
  start_ = ExpressionParser(text.substr(kPrefix.size()), origin, program_).parse();
}

bool NamePattern::matches(std::string_view name) const {
  if (!components_.empty()) {
    // Dots around both make "mlp" match a component, and not a part of one.
    return concat(".", name, ".").find(concat(".", components_, ".")) != std::string::npos;
  }
  std::vector<int> states, reached;
  std::vector<size_t> seen(program_.size(), std::string_view::npos);
  const auto follow = [&](int first, size_t at) {
    states.assign(1, first);
    while (!states.empty()) {
      const int state = states.back();
      states.pop_back();
      if (seen[static_cast<size_t>(state)] == at) continue;
      seen[static_cast<size_t>(state)] = at;
      const Instruction& one = program_[static_cast<size_t>(state)];
      if (one.kind == Kind::split) {
        states.push_back(one.next);
        states.push_back(one.other);
      } else if ((one.kind == Kind::begin && at == 0) ||
                 (one.kind == Kind::end && at == name.size())) {
        states.push_back(one.next);
      } else {
        reached.push_back(state);
      }
    }
  };
  follow(start_, 0);
  for (size_t at = 0;; ++at) {
    const std::vector<int> now = std::move(reached);
    reached.clear();
    for (const int state : now) {
      const Instruction& one = program_[static_cast<size_t>(state)];
      if (one.kind == Kind::accept) return true;
      if (one.kind != Kind::byte || at == name.size()) continue;
      if (one.bytes.test(static_cast<unsigned char>(name[at]))) follow(one.next, at + 1);
    }
    if (reached.empty()) return false;
  }
}

}  // namespace tessera::model
