// Memory, vectors and GPUs of this machine.
// SPDX-License-Identifier: MIT
#include "apps/machine.h"

#include <sys/resource.h>

#include <fstream>
#include <limits>

#include "core/text.h"

namespace tessera::apps {
namespace {

// A line of /proc/meminfo, such as "MemTotal:", in bytes.
int64_t meminfo(const std::string& wanted) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == wanted) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

int64_t total_memory_bytes() { return meminfo("MemTotal:"); }
int64_t available_memory_bytes() { return meminfo("MemAvailable:"); }

int64_t peak_resident_bytes() {
  struct rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

std::string show_device(Device device) {
  if (device.is_cpu()) return to_string(device);
  return concat(to_string(device), ", ", device_info(device).name);
}

std::vector<MemoryPlace> memory_places() {
  std::vector<MemoryPlace> places;
  if (const int64_t memory = total_memory_bytes(); memory > 0) {
    places.push_back({.name = "this CPU", .bytes = memory});
  }
  for (int i = 0; i < num_cuda_devices(); ++i) {
    places.push_back(
        {.name = concat("cuda:", i), .bytes = device_info(cuda_device(i)).memory_bytes});
  }
  places.push_back({.name = "80 GB GPU", .bytes = 80'000'000'000});
  places.push_back({.name = "141 GB GPU", .bytes = 141'000'000'000});
  return places;
}

}  // namespace tessera::apps
