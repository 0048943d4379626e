// Reads a whole file, up to a size limit.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

// The bytes of a regular file. Anything else is refused, and so is a file of more than max_bytes,
// before it is read; the message names the path.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace tessera
