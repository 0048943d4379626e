// operator new and aligned_alloc of the whole process, shared libraries included.
// SPDX-License-Identifier: MIT
#include "tests/memory/failing_allocator.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr int64_t kNever = -1;
std::atomic<int64_t> left_until_failure = kNever;
std::atomic<bool> has_failed = false;
std::atomic<int64_t> num_live = 0;

// The JSON library allocates in a destructor, where a failure cannot be reported: it ends the
// process, whatever its caller does. So the next allocation fails in its place.
bool is_in_json_destructor() {
  void* frames[24];
  const int count = backtrace(frames, 24);
  char** names = backtrace_symbols(frames, count);
  bool found = false;
  for (int i = 0; names != nullptr && i < count; ++i) {
    found = found || std::strstr(names[i], "json_value7destroy") != nullptr;
  }
  std::free(names);
  return found;
}

bool must_fail() {
  int64_t left = left_until_failure.load();
  while (left != kNever) {
    const int64_t next = left == 1 ? kNever : left - 1;
    if (!left_until_failure.compare_exchange_weak(left, next)) continue;
    if (left != 1) return false;
    if (is_in_json_destructor()) {
      left_until_failure = 1;
      return false;
    }
    has_failed = true;
    return true;
  }
  return false;
}

void* counted(void* data) {
  if (data != nullptr) ++num_live;
  return data;
}

void* real_aligned_alloc(size_t alignment, size_t size) {
  using Function = void* (*)(size_t, size_t);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "aligned_alloc"));
  return real(alignment, size);
}

void* allocate(size_t size) {
  return must_fail() ? nullptr : counted(std::malloc(size > 0 ? size : 1));
}

void* allocate(size_t size, std::align_val_t alignment) {
  const auto align = static_cast<size_t>(alignment);
  return must_fail() ? nullptr
                     : counted(real_aligned_alloc(align, (size + align - 1) / align * align));
}

void* or_throw(void* data) {
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void release(void* data) {
  if (data != nullptr) --num_live;
  std::free(data);
}

}  // namespace

// This memory is freed by free(), which is not counted, so tensors do not count as live.
extern "C" void* aligned_alloc(size_t alignment, size_t size) {
  return must_fail() ? nullptr : real_aligned_alloc(alignment, size);
}

void* operator new(size_t size) { return or_throw(allocate(size)); }
void* operator new[](size_t size) { return or_throw(allocate(size)); }
void* operator new(size_t size, std::align_val_t align) { return or_throw(allocate(size, align)); }
void* operator new[](size_t size, std::align_val_t align) {
  return or_throw(allocate(size, align));
}
void* operator new(size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void operator delete(void* data) noexcept { release(data); }
void operator delete[](void* data) noexcept { release(data); }
void operator delete(void* data, size_t) noexcept { release(data); }
void operator delete[](void* data, size_t) noexcept { release(data); }
void operator delete(void* data, const std::nothrow_t&) noexcept { release(data); }
void operator delete[](void* data, const std::nothrow_t&) noexcept { release(data); }
void operator delete(void* data, std::align_val_t) noexcept { release(data); }
void operator delete[](void* data, std::align_val_t) noexcept { release(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { release(data); }
void operator delete[](void* data, size_t, std::align_val_t) noexcept { release(data); }

namespace tessera::testing {

void fail_allocation(int64_t countdown) {
  has_failed = false;
  left_until_failure = countdown;
}

bool stop_failing() {
  left_until_failure = kNever;
  return has_failed;
}

int64_t num_live_allocations() { return num_live; }

}  // namespace tessera::testing
