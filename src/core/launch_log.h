// The kernels launched last, so that a fault or a hang can be named.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

namespace tessera {

// Launches are not waited for: a fault or a hang may be that of any since the host last waited. So
// many are remembered, about a step of a large model.
inline constexpr size_t kRememberedLaunches = 1024;

// A few nanoseconds, without a lock. `name` must live as long as the process; it may be mangled.
void log_launch(const char* name) noexcept;

// "attention_decode_kernel, rms_norm_kernel": the last launches of the process, newest first, each
// name once, without namespaces and template arguments. "none" where there was no launch.
std::string last_launches();

}  // namespace tessera
