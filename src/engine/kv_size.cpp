// Sizing of the KV cache, in whole pages.
// SPDX-License-Identifier: MIT
#include "engine/kv_size.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::engine {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::optional<int64_t> read_number(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // no such file, or "max"
}

int64_t available_on_machine() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  int64_t kibibytes = 0;
  while (file >> key >> kibibytes) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kibibytes * 1024;
  }
  return kNoLimit;
}

// A line of memory.stat, such as "active_file 4096".
int64_t read_statistic(std::string_view wanted) {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == wanted) return value;
  }
  return 0;
}

int64_t left_in_container() {
  const auto limit = read_number("/sys/fs/cgroup/memory.max");
  const auto used = read_number("/sys/fs/cgroup/memory.current");
  if (!limit || !used) return kNoLimit;
  // Files that were read count as used, and are given up for whoever wants the memory.
  const int64_t files = read_statistic("active_file") + read_statistic("inactive_file");
  return std::max<int64_t>(0, *limit - *used + files);
}

int64_t left_to_process() {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const int64_t used = read_number("/proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

[[noreturn]] void refuse_one_context(const KvNeeds& needs, int64_t context_bytes, int64_t bytes) {
  const FieldNames& names = needs.names;
  const std::string who = names.prefix("engine");
  const int64_t longest = bytes / needs.page_bytes * needs.page_size;
  const std::string fits =
      longest > 0 ? concat("lower ", names("max_context"), " to ", longest, " or less, or ")
                  : std::string();
  const std::string need = concat(who, "a context of ", needs.max_context, " tokens needs ",
                                  context_bytes, " bytes of KV cache; ");
  if (needs.kv_bytes > 0) {
    fail(concat(need, names("kv_bytes"), " is ", needs.kv_bytes, ": ", fits, "raise ",
                names("kv_bytes")));
  }
  throw OutOfMemory(concat(need, needs.free_bytes, " bytes are free beside the model, of which ",
                           needs.default_percent, " % are taken by default: ", fits, "set ",
                           names("kv_bytes")));
}

}  // namespace

int64_t num_kv_pages(const KvNeeds& needs) {
  const int64_t context_pages = (needs.max_context + needs.page_size - 1) / needs.page_size;
  const int64_t context_bytes = context_pages * needs.page_bytes;
  // Page numbers times page_size are 32-bit slots.
  const int64_t most_pages = std::numeric_limits<int32_t>::max() / needs.page_size;
  const int64_t bytes =
      needs.kv_bytes > 0 ? needs.kv_bytes : needs.free_bytes / 100 * needs.default_percent;
  if (bytes < context_bytes || most_pages < context_pages) {
    refuse_one_context(needs, context_bytes, bytes);
  }
  if (needs.kv_bytes > needs.free_bytes) {
    throw OutOfMemory(concat(needs.names.prefix("engine"), needs.names("kv_bytes"), " is ",
                             needs.kv_bytes, "; ", needs.free_bytes,
                             " bytes are free beside the model: lower it"));
  }
  const int64_t num_pages = std::min(bytes / needs.page_bytes, most_pages);
  return needs.kv_bytes > 0 ? num_pages : std::min(num_pages, context_pages * needs.max_batch);
}

int64_t free_memory(Device device) {
  if (device.is_cpu()) {
    return std::min({available_on_machine(), left_in_container(), left_to_process()});
  }
  return free_device_bytes(device);
}

}  // namespace tessera::engine
