// The launchers the KV cache tables point at. Each is defined in its .cuh and instantiated for one
// library in instances/*.cu; a row without an instance does not link.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kv/rows.h"

namespace tessera::kernels {

template <class Arch, class T>
void launch_kv_append(const KvAppendArgs& args, const Context& ctx);
template <class Arch, class T>
void launch_kv_gather(const KvGatherArgs& args, const Context& ctx);
template <class Arch>
void launch_kv_copy_pages(const KvCopyPagesArgs& args, const Context& ctx);

}  // namespace tessera::kernels
