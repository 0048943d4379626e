// Reads a whole file after checking its size.
// SPDX-License-Identifier: MIT
#include "core/read_file.h"

#include <fstream>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera {

std::string read_file(const std::filesystem::path& path, int64_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    fail(concat(shown_path(path.native()), ": there is no such file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(concat(shown_path(path.native()), ": cannot be read: ", error.message()));
  if (size > static_cast<uintmax_t>(max_bytes)) {
    fail(concat(shown_path(path.native()), ": has ", size, " bytes; at most ", max_bytes,
                " are read"));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file) fail(concat(shown_path(path.native()), ": cannot be read; check its permissions"));
  return text;
}

}  // namespace tessera
