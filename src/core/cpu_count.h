// How many CPUs this process may use.
// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace tessera {

// Of the CPUs in the affinity mask, as many as the quota of the process's cgroups pays for; at
// least 1.
int usable_cpus();

// The same rule for the quota alone: whole CPUs, rounded up, or 0 where there is none. `root`
// stands for "/" in tests.
int quota_cpus(const std::filesystem::path& root);

}  // namespace tessera
