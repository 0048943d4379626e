// Which source this binary was built from.
// SPDX-License-Identifier: MIT
#pragma once

namespace tessera {

extern const char* const kVersion;  // "0.1.0"
// The first twelve digits of the commit, "-dirty" behind it where tracked files had been changed;
// "unknown" where neither git, nor a source archive, nor TESSERA_COMMIT said at the build.
extern const char* const kCommit;

}  // namespace tessera
