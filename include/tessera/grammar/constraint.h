// What a request may generate: text that a JSON schema, a regular expression, a list of choices or
// a grammar describes.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// docs/structured_output.md says what each kind takes.
enum class ConstraintKind : uint8_t {
  json_schema,  // text: the schema
  json_object,  // any JSON object
  regex,        // text: a pattern that the whole output matches
  choice,       // one of `choices`
  grammar,      // text: rules in EBNF, of which `root` is generated
};
std::string_view name(ConstraintKind kind);  // "json_schema"

struct ConstraintSpec {
  ConstraintKind kind = ConstraintKind::json_schema;
  std::string text = {};
  std::vector<std::string> choices = {};
  // JSON kinds: most blanks, tabs and newlines at each place between two tokens of JSON. 0: none,
  // the output is compact.
  int32_t max_whitespace = 0;

  bool operator==(const ConstraintSpec&) const = default;
};

// Bounds of what is compiled. What exceeds one is refused, with the bound and the value.
struct ConstraintLimits {
  int64_t source_bytes = 256 << 10;
  int64_t nesting = 100;        // of groups in a pattern, of values in a schema
  int64_t repetition = 10'000;  // largest number in {m,n}, maxLength, maxItems
  int64_t states = 100'000;     // of the automaton
  int64_t memory = 64 << 20;    // bytes, while compiling
  int64_t milliseconds = 1000;
  int64_t depth = 64;  // rules within rules, in what is generated
};

namespace grammar {
class Automaton;
}

// A compiled constraint. It knows no tokenizer, never changes, and may be shared by requests,
// engines and threads.
class Constraint {
 public:
  // Throws Error if the text is malformed, names something that is not supported, matches nothing
  // or exceeds a limit.
  static std::shared_ptr<const Constraint> compile(const ConstraintSpec& spec,
                                                   const ConstraintLimits& limits = {});
  explicit Constraint(grammar::Automaton automaton);
  ~Constraint();

  // Whether the whole text satisfies the constraint.
  bool matches(std::string_view text) const;
  const grammar::Automaton& automaton() const { return *automaton_; }

 private:
  std::unique_ptr<const grammar::Automaton> automaton_;
};

}  // namespace tessera
