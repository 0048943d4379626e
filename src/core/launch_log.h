// The names of the last kernels launched, to report with a fault or a hang.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// How many launches are remembered: about one step of a large model. Launches are asynchronous, so
// any of them since the host last waited may have caused a fault.
inline constexpr size_t kRememberedLaunches = 1024;

// Takes a few nanoseconds and no lock. `name` must live as long as the process; it may be mangled.
void log_launch(const char* name) noexcept;

// "attention_decode_kernel, rms_norm_kernel": the last launches of the process, newest first, each
// name once, without namespaces and template arguments. "none" if nothing was launched.
std::string last_launches();

// How many launches the process has made, and the names of those from number `first` on, as far as
// they are remembered.
uint64_t num_launches() noexcept;
std::vector<const char*> launches_since(uint64_t first);

// "norm_kernel" for the symbol of "void tessera::kernels::norm_kernel<float, 4>(NormParams)".
std::string short_kernel_name(const char* symbol);

}  // namespace tessera
