// Errors: a message for the user and, apart from it, the place in the source.
// SPDX-License-Identifier: MIT
#include "tessera/core/error.h"

#include "core/text.h"

namespace tessera {
namespace {

constexpr size_t kMaxMessageBytes = 4096;

}  // namespace

Error::Error(std::string_view what, std::source_location where)
    : std::runtime_error(shown(what, kMaxMessageBytes)), where_(where) {}

std::string Error::where() const {
  // Only the file name: the build directory means nothing to the reader.
  std::string_view file = where_.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);  // npos + 1 is 0
  return concat(file, ":", where_.line());
}

void fail(std::string_view what, std::source_location where) { throw Error(what, where); }

void fail_mismatch(std::string_view what, int64_t got, int64_t want, std::source_location where) {
  fail(concat(what, " is ", got, "; expected ", want), where);
}

}  // namespace tessera
