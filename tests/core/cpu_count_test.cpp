// CPUs by quota, read from a made-up file system, and by affinity mask.
// SPDX-License-Identifier: MIT
#include "core/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "tests/model/temporary_folder.h"

namespace tessera::testing {
namespace {

class QuotaCpus : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) { folder_.write(path, text); }
  int cpus() const { return quota_cpus(folder_.path()); }

 private:
  TemporaryFolder folder_;
};

TEST_F(QuotaCpus, NoneWithoutCgroups) { EXPECT_EQ(cpus(), 0); }

TEST_F(QuotaCpus, OfVersion2IsRoundedUp) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus(), 0);
  write("sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpus(), 3);
  write("sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(cpus(), 1);
}

TEST_F(QuotaCpus, OfVersion2IsTheSmallestOfAllGroupsAbove) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  write("sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpus(), 4);
}

TEST_F(QuotaCpus, InAContainerIsAtTheRootOfTheMount) {
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpus(), 2);
}

TEST_F(QuotaCpus, OfVersion1) {
  write("proc/self/cgroup", "9:name=systemd:/x\n5:cpu,cpuacct:/a\n1:memory:/\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus(), 0);
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(cpus(), 2);
}

TEST_F(QuotaCpus, IgnoresFilesThatMakeNoSense) {
  write("proc/self/cgroup", "0\nnonsense\n0::/a\n");
  write("sys/fs/cgroup/a/cpu.max", "lots of it\n");
  EXPECT_EQ(cpus(), 0);
}

TEST(UsableCpus, AreThoseOfTheAffinityMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_LE(usable_cpus(), CPU_COUNT(&before));
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    if (CPU_COUNT(&one) == 1) break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cpus(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace tessera::testing
