// The RMSNorm in front of a product of one row, by every block for itself. That is a few kilobytes
// from L2 and two barriers, and saves the kernel in between and its place in the chain of launches.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "kernels/gemm/normed.h"
#include "kernels/norm_row.cuh"
#include "tessera/ops/norm.h"
#include "tile/arch.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels {

static_assert(sizeof(NormReductions) <= kReductionBytes);

// What a kernel reads to normalise its row. The threads of the norm kernel, whose sums are folded
// in a fixed order, are dealt out to the warps of the block.
struct NormedParams {
  NormParams norm;        // without bias and residual; `out` is not written
  int num_virtual_warps;  // of the norm kernel
  int log2_vecs;          // vectors of one of its threads: 1 or 2
  bool is_given;
};
static_assert(std::is_trivially_copyable_v<NormedParams>);

// For RmsNormArgs that fit (normed.h); null: the product reads its A.
inline NormedParams normed_params(const RmsNormArgs* args) {
  NormedParams p{};
  if (args == nullptr) return p;
  const auto data = [](const std::optional<TensorView>& view) {
    return view ? view->as<float>() : nullptr;
  };
  const auto hidden = static_cast<int>(args->x.size(-1));
  p.norm = {.x = args->x.data,
            .weight = args->weight.data,
            .static_scale = data(args->static_scale),
            .token_scale = data(args->token_scale),
            .hidden = hidden,
            .eps = args->eps};
  const NormTile tile = choose_norm_tile(hidden, kNormedVec);
  p.num_virtual_warps = tile.num_threads / 32;
  p.log2_vecs = tile.vecs_per_thread - 1;
  p.is_given = true;
  return p;
}

// Puts a vector of 8 or 16 bytes into shared memory.
template <class Vec>
__device__ void store_vec(uint32_t address, const Vec& vec) {
  using Word = std::conditional_t<sizeof(Vec) == 16, uint4, uint2>;
  static_assert(sizeof(Vec) == sizeof(Word));
  Word word;
  memcpy(&word, &vec, sizeof(word));
  tile::ptx::store_shared(address, word);
}

// In is the type of x, Out that of the product's A: the values, or codes with a scale.
template <class In, class Out>
class NormedRow {
 public:
  static constexpr int kSlots = kNormedMaxVecs;
  using Row = NormRow<In, Out, true>;
  using Vec = typename Row::Vec;

  // Loads the weights, while the kernel in front may still run.
  __device__ NormedRow(const NormedParams& p, int warp, int num_warps)
      : p_(p), row_{p.norm, 0}, warp_(warp), num_warps_(num_warps) {
    TESSERA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) weight_[slot] = row_.load_weight(vec_of(slot));
  }

  // Calls store(v, vector) for each vector of the normalised row that is this thread's. `sync` is a
  // barrier of all the warps. A dynamic scale is written by every block, the same one, and may be
  // read by its threads after their next barrier.
  template <class Sync, class Store>
  __device__ void run(NormReductions& shared, const Sync& sync, const Store& store) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Vec x[kSlots];
    TESSERA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) x[slot] = row_.load_x(vec_of(slot));
    NormValues<In> h[kSlots];
    float total = 0;
    TESSERA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      x[slot].to_floats(h[slot].values);
      total += row_.sum_of(vec_of(slot), h[slot], AddSquare{});
      if ((slot + 1 & (1 << p_.log2_vecs) - 1) != 0) continue;  // the thread has another vector
      const float of_warp = tile::warp_reduce<tile::Sum>(total);
      if (lane == 0 && virtual_warp(slot) < p_.num_virtual_warps) {
        shared.first[virtual_warp(slot)] = of_warp;
      }
      total = 0;
    }
    sync();
    const float squares = tile::warp_reduce<tile::Sum>(
        lane < p_.num_virtual_warps ? shared.first[lane] : tile::Sum::kIdentity);
    const NormStatistics statistics = root_mean_square(squares, p_.norm);
    float largest = 0;
    TESSERA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      row_.normalize(weight_[slot], statistics, h[slot]);
      if (row_.needs_absmax()) largest = tile::Max::apply(largest, row_.absmax_of(h[slot]));
    }
    const float inverse_scale = find_scale(largest, shared, sync);
    TESSERA_UNROLL
    for (int slot = 0; slot < kSlots; ++slot) {
      const int v = vec_of(slot);
      if (v * kNormedVec < p_.norm.hidden) store(v, Row::rounded(h[slot], inverse_scale));
    }
  }

 private:
  __device__ int virtual_warp(int slot) const {
    return warp_ + num_warps_ * (slot >> p_.log2_vecs);
  }
  // The vector in a slot; one beyond the row where the slot is not used.
  __device__ int vec_of(int slot) const {
    const int i = slot & (1 << p_.log2_vecs) - 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (virtual_warp(slot) >= p_.num_virtual_warps) return p_.norm.hidden;
    return (virtual_warp(slot) + i * p_.num_virtual_warps) * 32 + lane;
  }

  template <class Sync>
  __device__ float find_scale(float largest, NormReductions& shared, const Sync& sync) const {
    if constexpr (!Row::kIsQuantized) return 1.0f;
    if (!row_.needs_absmax()) return __fdiv_rn(1.0f, *p_.norm.static_scale);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    largest = tile::warp_reduce<tile::Max>(largest);
    if (lane == 0) shared.absmax[warp_] = largest;
    sync();
    const float scale =
        Row::scale_of(tile::warp_reduce<tile::Max>(lane < num_warps_ ? shared.absmax[lane] : 0.0f));
    if (warp_ == 0 && lane == 0) *p_.norm.token_scale = scale;
    return __fdiv_rn(1.0f, scale);
  }

  const NormedParams& p_;
  Row row_;
  int warp_, num_warps_;
  Vec weight_[kSlots];
};

// A warpgroup that multiplies from shared memory, with the named barrier 1: waits for the kernel in
// front, normalises the row and calls store(v, vector). `reductions` is an address in shared
// memory. `is_early`: the weights may be loaded before that kernel has finished.
template <class In, class Out, class Store>
__device__ void normalize_by_warpgroup(const NormedParams& p, uint32_t reductions, bool is_early,
                                       const Store& store) {
  if (!is_early) tile::wait_for_previous(Sm90{});
  NormedRow<In, Out> row(p, static_cast<int>(threadIdx.x) / 32, 4);
  tile::wait_for_previous(Sm90{});
  const auto sync = [] { tile::ptx::bar_sync(1, 128); };
  row.run(*reinterpret_cast<NormReductions*>(__cvta_shared_to_generic(reductions)), sync, store);
  tile::ptx::fence_proxy_async_shared();
  sync();
}

}  // namespace tessera::kernels
