// Text files, packed ones read through the tool that made them.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>

namespace tessera::apps {

// The whole file. Names ending in .bz2, .xz and .gz are unpacked by bzip2, xz and gzip, which must
// be installed. Refuses what cannot be read, saying why.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace tessera::apps
