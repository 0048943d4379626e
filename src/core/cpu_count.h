// How many CPUs this process may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace tessera {

// The number of CPUs in the affinity mask, or the CPU quota of the process's cgroups if that is
// smaller; at least 1.
int usable_cpus();

// The quota alone, in whole CPUs, rounded up; 0 if there is none. Tests pass another `root` than
// "/".
int quota_cpus(const std::filesystem::path& root);

}  // namespace tessera
