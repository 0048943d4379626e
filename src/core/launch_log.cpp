// A ring buffer of names. Launches write it without a lock; a report reads whatever is there.
// SPDX-License-Identifier: MIT
#include "core/launch_log.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

namespace tessera {
namespace {

std::atomic<uint64_t> num_launches{0};
std::array<std::atomic<const char*>, kRememberedLaunches> names{};

// "norm_kernel" for "void tessera::kernels::norm_kernel<float, 4>(NormParams)".
std::string short_name(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  std::string text = status == 0 ? demangled.get() : name;
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous)) {
    text.erase(at, kAnonymous.size());
  }
  text.resize(std::min(text.find_first_of("<("), text.size()));
  const size_t begin = text.find_last_of(": ");
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

}  // namespace

void log_launch(const char* name) noexcept {
  const uint64_t number = num_launches.fetch_add(1, std::memory_order_relaxed);
  names[number % kRememberedLaunches].store(name, std::memory_order_relaxed);
}

std::string last_launches() {
  const uint64_t end = num_launches.load(std::memory_order_relaxed);
  std::vector<const char*> seen;
  std::vector<std::string> listed;
  for (uint64_t i = 0; i < std::min<uint64_t>(end, kRememberedLaunches); ++i) {
    const char* name = names[(end - 1 - i) % kRememberedLaunches].load(std::memory_order_relaxed);
    if (name == nullptr) continue;  // another thread is just writing it
    if (std::ranges::find(seen, name) != seen.end()) continue;
    seen.push_back(name);
    std::string text = short_name(name);
    if (std::ranges::find(listed, text) == listed.end()) listed.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& name : listed) (all += all.empty() ? "" : ", ") += name;
  return all.empty() ? "none" : all;
}

}  // namespace tessera
