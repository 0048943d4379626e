// The log that the operations of a thread go to.
// SPDX-License-Identifier: MIT
#include "core/op_log.h"

#include <chrono>

#include "tessera/core/error.h"

namespace tessera {
namespace {

thread_local OpLog* log_of_thread = nullptr;

}  // namespace

int64_t steady_now_ns() noexcept {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

OpLogScope::OpLogScope(OpLog& log) {
  expects(log_of_thread == nullptr, "OpLogScope: this thread's operations are being noted already");
  log_of_thread = &log;
}

OpLogScope::~OpLogScope() { log_of_thread = nullptr; }

OpLog* current_op_log() noexcept { return log_of_thread; }

}  // namespace tessera
