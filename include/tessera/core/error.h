// The one exception type, and the verb that checks a caller's contract.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace tessera {

// Everything Tessera throws. The message names the operation, shows the values and the remedy.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Where a call was made, as a default argument. std::source_location is not there with every
// compiler that the tree is built with: clang 14 has none.
struct SourceLocation {
  const char* file = "";
  unsigned line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

// Defined in error.cpp so that headers pay nothing for formatting.
[[noreturn]] void fail(std::string_view what, SourceLocation where = SourceLocation::current());
[[noreturn]] void fail_mismatch(std::string_view what, int64_t got, int64_t want,
                                SourceLocation where);

// The caller's contract. Always on: a server must refuse a wrong shape, and one predictable
// branch is nothing beside a launch. Where the message needs values, test first and call fail
// with a formatted text, so that the good path formats nothing.
inline void expects(bool ok, std::string_view what,
                    SourceLocation where = SourceLocation::current()) {
  if (!ok) [[unlikely]]
    fail(what, where);
}

// Says both numbers, because "shape mismatch" has never helped anyone.
inline void expects_equal(int64_t got, int64_t want, std::string_view what,
                          SourceLocation where = SourceLocation::current()) {
  if (got != want) [[unlikely]]
    fail_mismatch(what, got, want, where);
}

}  // namespace tessera
