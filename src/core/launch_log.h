// The names of the last kernels launched, to report with a fault or a hang.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

namespace tessera {

// How many launches are remembered: about one step of a large model. Launches are asynchronous, so
// any of them since the host last waited may have caused a fault.
inline constexpr size_t kRememberedLaunches = 1024;

// Takes a few nanoseconds and no lock. `name` must live as long as the process; it may be mangled.
void log_launch(const char* name) noexcept;

// "attention_decode_kernel, rms_norm_kernel": the last launches of the process, newest first, each
// name once, without namespaces and template arguments. "none" if nothing was launched.
std::string last_launches();

}  // namespace tessera
