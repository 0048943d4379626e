// The KV cache rows, written once for both libraries: KvCacheTable<Portable> and KvCacheTable<Sm90>
// hold the same kernels, the latter compiled with programmatic dependent launch.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/kv/launch.h"
#include "kernels/kv/plan.h"

namespace tessera::kernels {

template <class Arch>
struct KvCacheTable {
  template <class T>
  static constexpr RowKey key{dtype_of<T>, dtype_of<T>};

  static constexpr Row<KvAppendArgs> append[] = {
      {"kv_append",
       Arch::library,
       key<Bf16>,
       &launch_kv_append<Arch, Bf16>,
       {},
       &has_countable_slots},
      {"kv_append",
       Arch::library,
       key<F16>,
       &launch_kv_append<Arch, F16>,
       {},
       &has_countable_slots},
      {"kv_append",
       Arch::library,
       key<float>,
       &launch_kv_append<Arch, float>,
       {},
       &has_countable_slots},
  };
  static constexpr Row<KvGatherArgs> gather[] = {
      {"kv_gather", Arch::library, key<Bf16>, &launch_kv_gather<Arch, Bf16>},
      {"kv_gather", Arch::library, key<F16>, &launch_kv_gather<Arch, F16>},
      {"kv_gather", Arch::library, key<float>, &launch_kv_gather<Arch, float>},
  };
  static constexpr Row<KvCopyPagesArgs> copy_pages[] = {
      {"kv_copy_pages", Arch::library, key<uint8_t>, &launch_kv_copy_pages<Arch>, "bytes",
       &has_countable_pages},
  };

  static constexpr KvCacheRows rows{append, gather, copy_pages};
};

}  // namespace tessera::kernels
