// Limits of a compilation, and what they say when they are exceeded.
// SPDX-License-Identifier: MIT
#include "grammar/budget.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::grammar {

Budget::Budget(const ConstraintLimits& limits) : limits_(limits) {
  expects(limits.depth >= 1 && limits.depth <= 1024, "constraint: limits.depth: give 1 to 1024");
  expects(limits.nesting >= 1 && limits.nesting <= 1000,
          "constraint: limits.nesting: give 1 to 1000");
}

void Budget::check_source(std::string_view text) const {
  if (std::ssize(text) <= limits_.source_bytes) return;
  fail(concat("constraint: the text has ", text.size(), " bytes; the limit is ",
              limits_.source_bytes));
}

void Budget::check_nesting(int64_t depth) const {
  if (depth <= limits_.nesting) return;
  fail(concat("constraint: nests deeper than ", limits_.nesting, " levels"));
}

void Budget::check_repetition(int64_t count, std::string_view what) const {
  if (count <= limits_.repetition) return;
  fail(concat("constraint: ", what, " is ", count, "; the limit is ", limits_.repetition));
}

void Budget::take_state() {
  check_time();
  if (++num_states_ <= limits_.states) return;
  fail(concat("constraint: needs more than ", limits_.states,
              " states; lower repetitions and lengths, or anchor patterns"));
}

void Budget::take_memory(int64_t bytes) {
  num_bytes_ += bytes;
  if (num_bytes_ <= limits_.memory) return;
  fail(concat("constraint: needs more than ", limits_.memory,
              " bytes to compile; lower repetitions and lengths, or anchor patterns"));
}

void Budget::check_time() {
  if (++num_calls_ % 256 != 0) return;
  const auto spent = std::chrono::steady_clock::now() - start_;
  if (spent <= std::chrono::milliseconds(limits_.milliseconds)) return;
  fail(concat("constraint: takes more than ", limits_.milliseconds, " ms to compile; simplify it"));
}

}  // namespace tessera::grammar
