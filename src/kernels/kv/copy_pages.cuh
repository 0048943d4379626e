// Copies whole pages of a KV cache, with their scales.
// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kernels/kv/params.h"
#include "kernels/launch.h"
#include "tile/arch.cuh"
#include "tile/vec.cuh"

namespace tessera::kernels::kv {

// Copies part `part` of a page: kCopyUnits units per thread, a block's width apart, all loads
// before the stores.
template <class Unit>
__device__ void copy_part(const PageWalk& walk, int64_t source, int64_t target, uint32_t part) {
  const auto* from = reinterpret_cast<const Unit*>(walk.data + source * walk.page_stride);
  auto* to = reinterpret_cast<Unit*>(walk.data + target * walk.page_stride);
  const uint32_t first = part * (kCopyThreads * kCopyUnits) + threadIdx.x;
  int64_t offsets[kCopyUnits];
  Unit units[kCopyUnits];
  TESSERA_UNROLL
  for (uint32_t u = 0; u < kCopyUnits; ++u) {
    const uint32_t index = first + u * kCopyThreads;
    offsets[u] = walk.offset_of(min(index, walk.num_units - 1));
    if (index < walk.num_units) units[u] = from[offsets[u]];
  }
  TESSERA_UNROLL
  for (uint32_t u = 0; u < kCopyUnits; ++u) {
    if (first + u * kCopyThreads < walk.num_units) to[offsets[u]] = units[u];
  }
}

// Copies pages to pages.
//
//   pages[targets[i]] = pages[sources[i]]      of every pool: keys, values, their scales
//
// Work      grid = (blocks per page, copies). A block copies kCopyThreads * kCopyUnits units of one
//           page of one pool. A unit is as wide as addresses and strides allow, at most 16 bytes; a
//           contiguous page, heads first or rows first, is one run of units.
// Pipeline  A thread's loads are in flight together; several blocks per SM overlap.
// Output    The same bytes. A copy from or to a page that does not exist is skipped.
// Cost      Reads and writes each byte once. With 16-byte units bandwidth is the limit; the aim is
//           80 % of it. docs/kernels/kv.md
// Needs     no target that is also a source, and no target twice.
template <class Arch>
__global__ void __launch_bounds__(kCopyThreads, 3)
    kv_copy_pages_kernel(const __grid_constant__ KvCopyPagesParams p) {
  tile::wait_for_previous(Arch{});
  tile::release_next(Arch{});
  uint32_t part = blockIdx.x;
  int pool = 0;
  for (; part >= p.pools[pool].num_blocks; ++pool) part -= p.pools[pool].num_blocks;
  const PageWalk& walk = p.pools[pool];
  for (int64_t copy = blockIdx.y; copy < p.count; copy += gridDim.y) {
    const int64_t source = p.sources[copy], target = p.targets[copy];
    if (source < 0 || source >= p.num_pages || target < 0 || target >= p.num_pages) continue;
    switch (walk.unit_bytes) {
      case 16: copy_part<tile::Vec<uint32_t, 4>>(walk, source, target, part); break;
      case 8: copy_part<uint64_t>(walk, source, target, part); break;
      case 4: copy_part<uint32_t>(walk, source, target, part); break;
      case 2: copy_part<uint16_t>(walk, source, target, part); break;
      default: copy_part<uint8_t>(walk, source, target, part); break;
    }
  }
}

template <class Arch>
void launch_copy_pages(const KvCopyPagesArgs& args, const Context& ctx) {
  KvCopyPagesParams p{.sources = args.sources.as<const int32_t>(),
                      .targets = args.targets.as<const int32_t>(),
                      .count = args.sources.num_elements(),
                      .num_pages = args.k_pages.size(0)};
  uint32_t blocks_per_page = 0;
  for (const TensorView* pool : {&args.k_pages, &args.v_pages, &args.k_scales, &args.v_scales}) {
    if (pool->rank < 4 || pool->num_elements() == 0) continue;
    p.pools[p.num_pools] = walk_page(*pool);
    blocks_per_page += p.pools[p.num_pools++].num_blocks;
  }
  if (p.count == 0 || blocks_per_page == 0) return;
  constexpr int64_t kMostInGrid = 65535;  // along y
  launch(&kv_copy_pages_kernel<Arch>,
         {.grid = dim3(blocks_per_page, static_cast<unsigned>(std::min(p.count, kMostInGrid))),
          .block = dim3(kCopyThreads),
          .overlaps_previous = kOverlaps<Arch>},
         p, ctx);
}

}  // namespace tessera::kernels::kv
