// Fuzzes the compilers of constraints: they end soon, and what they accept can be generated. The
// first byte says which kind the rest is, unless TESSERA_FUZZ_KIND does.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string>

#include "fuzz/fuzz.h"
#include "grammar/machine.h"
#include "tessera/core/error.h"
#include "tessera/grammar/constraint.h"

namespace {

using namespace tessera;

// Follows the bytes that bring the end nearest, as the automaton's needs tell, then any that do.
void require_way_out(const Constraint& constraint) {
  grammar::Machine machine(constraint.automaton());
  int32_t set = machine.start();
  for (int i = 0; i < 64 && !machine.may_leave(set); ++i) {
    int32_t next = grammar::Machine::kDead;
    for (int byte = 0; byte < 256 && next == grammar::Machine::kDead; ++byte) {
      next = machine.after(set, static_cast<uint8_t>(byte));
    }
    fuzz::require(next != grammar::Machine::kDead, "a text that is not complete can go on");
    set = next;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr ConstraintKind kKinds[] = {ConstraintKind::json_schema, ConstraintKind::regex,
                                       ConstraintKind::grammar};
#ifdef TESSERA_FUZZ_KIND
  constexpr int kind = TESSERA_FUZZ_KIND;
#else
  const int kind = data[0] % 3;
#endif
  const std::string_view text = fuzz::as_text(data + 1, size - 1);
  const ConstraintLimits limits{.states = 5000, .memory = 16 << 20, .milliseconds = 200};
  try {
    const auto constraint = Constraint::compile(
        {.kind = kKinds[kind], .text = std::string(text), .max_whitespace = data[0] / 3 % 2},
        limits);
    fuzz::require(constraint->automaton().num_states() <= limits.states, "states are bounded");
    constraint->matches(text);
    require_way_out(*constraint);
  } catch (const Error&) {
    // Refused, as a malformed or too ambiguous constraint should be.
  }
  return 0;
}
