// The one exception type, and the verb that checks a caller's contract.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// Everything Tessera throws. The message names the operation, shows the values and the remedy. It
// is one printable line, whatever text from files or requests it carries: control characters and
// invalid UTF-8 are escaped, and what is longer than 4,096 bytes is cut.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view what,
                 std::source_location where = std::source_location::current());

  // The line of the source that raised it, "kv_cache.cpp:31": for whoever reports or debugs it.
  std::string where() const;

 private:
  std::source_location where_;
};

// Memory was asked for that is not there: the host's, a GPU's, or what a limit leaves of either.
class OutOfMemory : public Error {
 public:
  // Written out: nvcc 13.0 fails on an inherited constructor with this default argument.
  explicit OutOfMemory(std::string_view what,
                       std::source_location where = std::source_location::current())
      : Error(what, where) {}
};

// Defined in error.cpp so that headers pay nothing for formatting.
[[noreturn]] void fail(std::string_view what,
                       std::source_location where = std::source_location::current());
[[noreturn]] void fail_mismatch(std::string_view what, int64_t got, int64_t want,
                                std::source_location where);

// The caller's contract. Always on: a server must refuse a wrong shape, and one predictable
// branch is nothing beside a launch. Where the message needs values, test first and call fail
// with a formatted text, so that the good path formats nothing.
inline void expects(bool ok, std::string_view what,
                    std::source_location where = std::source_location::current()) {
  if (!ok) [[unlikely]]
    fail(what, where);
}

// Says both numbers, because "shape mismatch" has never helped anyone.
inline void expects_equal(int64_t got, int64_t want, std::string_view what,
                          std::source_location where = std::source_location::current()) {
  if (got != want) [[unlikely]]
    fail_mismatch(what, got, want, where);
}

}  // namespace tessera
