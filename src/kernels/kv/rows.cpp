// The KV cache tables of both libraries. They hold the same kernels; those of the sm90 library use
// programmatic dependent launch.
// SPDX-License-Identifier: MIT
#include "kernels/kv/rows.h"

#include "kernels/kv/params.h"

namespace tessera::kernels {
namespace kv {
namespace {

template <class T>
constexpr RowKey key{dtype_of<T>, dtype_of<T>};

template <class Arch, class T>
constexpr Row<KvAppendArgs> append_row{
    "kv_append", Arch::library, key<T>, &launch_append<Arch, T>, {}, &has_countable_slots};
template <class Arch>
constexpr Row<KvAppendArgs> append[] = {append_row<Arch, Bf16>, append_row<Arch, F16>,
                                        append_row<Arch, float>};

template <class Arch, class T>
constexpr Row<KvGatherArgs> gather_row{"kv_gather", Arch::library, key<T>, &launch_gather<Arch, T>};
template <class Arch>
constexpr Row<KvGatherArgs> gather[] = {gather_row<Arch, Bf16>, gather_row<Arch, F16>,
                                        gather_row<Arch, float>};

template <class Arch>
constexpr Row<KvCopyPagesArgs> copy_pages[] = {{"kv_copy_pages", Arch::library, key<uint8_t>,
                                                &launch_copy_pages<Arch>, "bytes",
                                                &has_countable_pages}};

template <class Arch>
constexpr KvCacheRows rows{append<Arch>, gather<Arch>, copy_pages<Arch>};

}  // namespace
}  // namespace kv

const KvCacheRows& kv_cache_rows() { return kv::rows<Portable>; }
#ifdef TESSERA_SM90  // otherwise rows_none_sm90.cpp has an empty one
const KvCacheRows& kv_cache_rows_sm90() { return kv::rows<Sm90>; }
#endif

}  // namespace tessera::kernels
