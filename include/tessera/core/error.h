// The exception type of the library, and the functions that check a caller's arguments.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// Everything Tessera throws. The message names the operation and shows the values and the remedy.
// It is one printable line even if it quotes files or requests: control characters and invalid
// UTF-8 are escaped, and text beyond 4,096 bytes is cut.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string_view what,
                 std::source_location where = std::source_location::current());

  // The source line that raised it, "kv_cache.cpp:31", for bug reports.
  std::string where() const;

 private:
  std::source_location where_;
};

// There is not enough memory on the host or a GPU, or a limit does not allow as much.
class OutOfMemory : public Error {
 public:
  // Written out: nvcc 13.0 fails on an inherited constructor with this default argument.
  explicit OutOfMemory(std::string_view what,
                       std::source_location where = std::source_location::current())
      : Error(what, where) {}
};

// Defined in error.cpp, so that this header does not include formatting.
[[noreturn]] void fail(std::string_view what,
                       std::source_location where = std::source_location::current());
[[noreturn]] void fail_mismatch(std::string_view what, int64_t got, int64_t want,
                                std::source_location where);

// Checks the caller's arguments. Always on: a server must refuse a wrong shape, and a predictable
// branch costs nothing compared with a launch. If the message needs values, test first and call
// fail with a formatted text, so that nothing is formatted when all is well.
inline void expects(bool ok, std::string_view what,
                    std::source_location where = std::source_location::current()) {
  if (!ok) [[unlikely]]
    fail(what, where);
}

// The message shows both numbers, because "shape mismatch" alone helps nobody.
inline void expects_equal(int64_t got, int64_t want, std::string_view what,
                          std::source_location where = std::source_location::current()) {
  if (got != want) [[unlikely]]
    fail_mismatch(what, got, want, where);
}

}  // namespace tessera
