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

std::atomic<uint64_t> launch_count{0};
std::array<std::atomic<const char*>, kRememberedLaunches> names{};

}  // namespace

std::string short_kernel_name(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), &std::free);
  std::string text = status == 0 ? demangled.get() : symbol;
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (size_t at = text.find(kAnonymous); at != std::string::npos; at = text.find(kAnonymous)) {
    text.erase(at, kAnonymous.size());
  }
  text.resize(std::min(text.find_first_of("<("), text.size()));
  const size_t begin = text.find_last_of(": ");
  return begin == std::string::npos ? text : text.substr(begin + 1);
}

void log_launch(const char* name) noexcept {
  const uint64_t number = launch_count.fetch_add(1, std::memory_order_relaxed);
  names[number % kRememberedLaunches].store(name, std::memory_order_relaxed);
}

uint64_t num_launches() noexcept { return launch_count.load(std::memory_order_relaxed); }

std::vector<const char*> launches_since(uint64_t first) {
  const uint64_t end = num_launches();
  if (end > kRememberedLaunches) first = std::max(first, end - kRememberedLaunches);
  std::vector<const char*> found;
  for (uint64_t i = first; i < end; ++i) {
    found.push_back(names[i % kRememberedLaunches].load(std::memory_order_relaxed));
  }
  return found;
}

std::string last_launches() {
  const uint64_t end = launch_count.load(std::memory_order_relaxed);
  std::vector<const char*> seen;
  std::vector<std::string> listed;
  for (uint64_t i = 0; i < std::min<uint64_t>(end, kRememberedLaunches); ++i) {
    const char* name = names[(end - 1 - i) % kRememberedLaunches].load(std::memory_order_relaxed);
    if (name == nullptr) continue;  // another thread is just writing it
    if (std::ranges::find(seen, name) != seen.end()) continue;
    seen.push_back(name);
    std::string text = short_kernel_name(name);
    if (std::ranges::find(listed, text) == listed.end()) listed.push_back(std::move(text));
  }
  std::string all;
  for (const std::string& name : listed) (all += all.empty() ? "" : ", ") += name;
  return all.empty() ? "none" : all;
}

}  // namespace tessera
