// Memory and file descriptors of this process.
// SPDX-License-Identifier: MIT
#pragma once

#include <malloc.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tessera::soak {

inline int64_t count_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open)) - 1;  // one is that of the folder itself
}

// Resident memory, after the allocator has returned its free memory to the system.
inline int64_t resident_bytes() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) return kilobytes << 10;
  }
  return 0;
}

// A sanitizer holds freed memory back, so resident memory says nothing about leaks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif

}  // namespace tessera::soak
