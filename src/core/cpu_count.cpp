// The affinity mask from the kernel, quotas from the cgroup file system, version 1 or 2.
// SPDX-License-Identifier: MIT
#include "core/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// quota / period in whole CPUs, rounded up; 0 for "max", -1 or a missing file.
int cpus_of(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  const double cpus = quota / period;
  if (cpus >= 1 << 20) return 0;
  const int whole = static_cast<int>(cpus);
  return std::max(1, whole < cpus ? whole + 1 : whole);
}

double number_in(const fs::path& path) {
  std::ifstream file(path);
  double number = 0;
  return file >> number ? number : 0;
}

int quota_of_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  double quota = 0, period = 0;
  return file >> quota >> period ? cpus_of(quota, period) : 0;
}

int quota_of_v1(const fs::path& group) {
  return cpus_of(number_in(group / "cpu.cfs_quota_us"), number_in(group / "cpu.cfs_period_us"));
}

int smaller_known(int a, int b) { return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b); }

// The smallest quota of a group and its ancestors. In a container the mount's root is often the
// process's own group, so the root counts too.
template <class QuotaOf>
int quota_up_from(const fs::path& mount, const fs::path& group, QuotaOf&& quota_of) {
  int found = quota_of(mount);
  for (fs::path at = group.relative_path(); !at.empty(); at = at.parent_path()) {
    found = smaller_known(found, quota_of(mount / at));
  }
  return found;
}

bool names_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

int quota_cpus(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");  // lines of "7:cpu,cpuacct:/path" or "0::/path"
  int found = 0;
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      found = smaller_known(found, quota_up_from(mount, group, quota_of_v2));
    } else if (names_cpu(controllers)) {
      for (const fs::path& folder : {fs::path("cpu"), fs::path(controllers)}) {
        found = smaller_known(found, quota_up_from(mount / folder, group, quota_of_v1));
      }
    }
  }
  return found;
}

int usable_cpus() {
  int cpus = 0;
  // cpu_set_t may be too small for the mask: a machine can have thousands of CPUs.
  for (int most = CPU_SETSIZE; cpus == 0 && most <= 1 << 20; most *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(most));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    if (sched_getaffinity(0, bytes, set) == 0) cpus = CPU_COUNT_S(bytes, set);
    CPU_FREE(set);
  }
  return std::max(1, smaller_known(cpus, quota_cpus("/")));
}

}  // namespace tessera
