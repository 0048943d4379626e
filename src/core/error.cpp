// The text of an error: what the user must read first, then where it was raised.
// SPDX-License-Identifier: MIT
#include "tessera/core/error.h"

#include "core/text.h"

namespace tessera {

void fail(std::string_view what, std::source_location where) {
  // Only the file's own name: the directory it was built in means nothing to the reader.
  std::string_view file = where.file_name();
  file.remove_prefix(file.find_last_of('/') + 1);  // npos + 1 is 0
  throw Error(concat(what, " (", file, ":", where.line(), ")"));
}

void fail_mismatch(std::string_view what, int64_t got, int64_t want, std::source_location where) {
  fail(concat(what, " is ", got, "; expected ", want), where);
}

}  // namespace tessera
