// Files read whole, within a bound.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

// Refuses, naming the path, what is no regular file, and what has more than max_bytes before it is
// read.
std::string read_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace tessera
