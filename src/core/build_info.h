// Which source this binary was built from.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera {

extern const char* const kVersion;  // "0.1.0"
// The first twelve digits of the commit, with "-dirty" appended if tracked files had changed;
// "unknown" if neither git, nor a source archive, nor TESSERA_COMMIT named it at the build.
extern const char* const kCommit;

}  // namespace tessera
