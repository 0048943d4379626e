// Text files, also compressed ones.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace tessera::apps {

// The whole file. Names ending in .bz2, .xz and .gz are unpacked by bzip2, xz and gzip, which must
// be installed. Refuses what cannot be read, with the reason.
std::string read_text_file(const std::filesystem::path& path);

// All of standard input without its last newline: `echo hello | tessera run`. Refuses more than
// `most` bytes as soon as they have arrived, and input that cannot be read.
std::string read_input(size_t most);

}  // namespace tessera::apps
