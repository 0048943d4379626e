// The producer warpgroup: chooses tiles of queries, loads q, k and v by TMA, and transposes 8-bit
// values.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/mask.cuh"
#include "kernels/attention/prefill/sm90/shared.cuh"
#include "tile/arch.cuh"
#include "tile/descriptor.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/barrier.cuh"
#include "tile/ptx/ldmatrix.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/ptx/stmatrix.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/swizzle.cuh"

namespace tessera::kernels::prefill_sm90 {

// The tile of a block in round r. Rounds alternate in direction: tiles get shorter along the order,
// so a block that had the longest of one round gets the shortest of the next.
// docs/decisions/010-attention-without-a-counter.md
__device__ inline int tile_of_round(int round) {
  const int num_blocks = static_cast<int>(gridDim.x);
  const int block = static_cast<int>(blockIdx.x);
  return round * num_blocks + (round % 2 == 0 ? block : num_blocks - 1 - block);
}

// Rounded up.
__device__ inline int divide_up(int value, int by) { return (value + by - 1) / by; }

struct TilePlace {
  int sequence;
  int head;
  int m_tile;
};

// Heads are processed in groups whose keys and values stay in L2. Within a group the last tile of
// every head comes first: with a causal mask it is the longest.
__device__ inline TilePlace batched_place(const Sm90PrefillParams& p, int index) {
  const int num_heads = p.common.num_heads;
  const int in_group = index % (p.group * p.m_tiles);
  const int first = index / (p.group * p.m_tiles) * p.group;
  const int group = min(p.group, num_heads * p.common.batch - first);
  const int head = first + in_group % group;
  return {head / num_heads, head % num_heads, p.m_tiles - 1 - in_group / group};
}

// Called by a warp. The tiles of a sequence follow each other, its last first. Past the last tile
// of all, the sequence is p.common.batch.
template <int kRows>
__device__ TilePlace ragged_place(const Sm90PrefillParams& p, int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int wanted = index / p.common.num_heads;
  int before = 0;
  for (int base = 0; base < p.common.batch; base += 32) {
    const int s = base + lane;
    int count = 0;
    if (s < p.common.batch) {
      count = divide_up(p.common.q_starts[s + 1] - p.common.q_starts[s], kRows);
    }
    int end = count;
    TESSERA_UNROLL
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += other;
    }
    end += before;
    const unsigned found = __ballot_sync(~0u, wanted < end);
    if (found != 0) {
      const int first = __ffs(found) - 1;
      return {base + first, index % p.common.num_heads, __shfl_sync(~0u, end, first) - 1 - wanted};
    }
    before = __shfl_sync(~0u, end, 31);
  }
  return {p.common.batch, 0, 0};
}

// Ranges of keys as ranges of blocks of keys.
template <int kKeys>
__device__ BlockRanges block_ranges(const TileKeys& keys) {
  const auto pair = [](int x, int y) {
    return short2{static_cast<int16_t>(x), static_cast<int16_t>(y)};
  };
  int seen_begin[2], seen_end[2], full_begin[2], full_end[2];
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    const bool is_seen = keys.any[i].begin < keys.any[i].end;
    const bool is_full = keys.all[i].begin < keys.all[i].end;
    seen_begin[i] = is_seen ? keys.any[i].begin / kKeys : 0;
    seen_end[i] = is_seen ? divide_up(keys.any[i].end, kKeys) : 0;
    full_begin[i] = is_full ? divide_up(keys.all[i].begin, kKeys) : 0;
    full_end[i] = is_full ? keys.all[i].end / kKeys : 0;
  }
  return {pair(seen_begin[0], seen_begin[1]), pair(seen_end[0], seen_end[1]),
          pair(full_begin[0], full_begin[1]), pair(full_end[0], full_end[1])};
}

// Describes tile `index` in shared memory; called by a warp. False: no tile is left.
template <class Tile>
__device__ bool make_work(const Sm90PrefillParams& p, int index, PrefillWork& work) {
  const bool is_writer = threadIdx.x % 32 == 0;
  TilePlace at{p.common.batch, 0, 0};
  if (index < p.num_tiles) {
    at = p.common.q_starts != nullptr ? ragged_place<Tile::kRows>(p, index)
                                      : batched_place(p, index);
  }
  if (at.sequence >= p.common.batch) {
    if (is_writer) work.head = -1;
    return false;
  }
  const Sequence s = sequence_of(p.common, at.sequence);
  const int first_row = at.m_tile * Tile::kRows;
  constexpr int kParts = Tile::kSkipsBlocks ? Tile::kWarpgroups : 1;
  constexpr int kPartRows = Tile::kRows / kParts;
  TileKeys keys = TileKeys::of_no_rows();
#pragma unroll 1
  for (int w = 0; w < kParts; ++w) {
    const int first = first_row + kPartRows * w;
    BlockRanges blocks{};
    if (first < s.q_len) {
      const TileKeys part = tile_keys(p.common.mask, s, first, min(first + kPartRows, s.q_len) - 1);
      keys.join(part);
      blocks = block_ranges<Tile::kKeys>(part);
    }
    if (is_writer) work.of_warpgroup[w] = blocks;
  }
  if (!is_writer) return true;
  work.sequence = at.sequence;
  work.head = at.head;
  work.kv_head = at.head / (p.common.num_heads / p.common.num_kv_heads);
  work.first_row = first_row;
  work.kv_begin = s.kv_begin;
  work.kv_batch = p.common.kv_starts != nullptr ? 0 : at.sequence;
  work.q_begin = s.q_begin;
  work.q_len = s.q_len;
  work.kv_len = s.kv_len;
  TESSERA_UNROLL
  for (int i = 0; i < 2; ++i) {
    work.any_begin[i] = keys.any[i].begin;
    work.any_end[i] = keys.any[i].end;
  }
  work.blocks = block_ranges<Tile::kKeys>(keys);
  return true;
}

// The box that one lane loads of every block of k, or of v. If two warps load, they alternate.
template <int kSlabs>
struct LaneBox {
  int slab;
  int key;  // within the block; beyond its last key: the lane loads nothing

  __device__ LaneBox(const Sm90PrefillParams& p, int warp, int lane)
      : slab(lane % kSlabs), key((lane / kSlabs * p.num_loaders + warp) * p.box_rows) {}
};

// One warp feeds several warpgroups, so every instruction counts: its loop has no division. It has
// few registers, so what describes the tile stays in shared memory.
template <class T, class Tile>
struct PrefillProducer {
  using Shared = PrefillShared<T, Tile>;
  static constexpr int kSlabCols = kSlabBytes / static_cast<int>(sizeof(T));
  // The next tile is prepared after this many blocks of a tile: by then the consumers have started
  // on it and released the previous query buffer. With one buffer, after the last block.
  static constexpr int kPrepareAfter = Tile::kQueryBuffers == 2 ? Tile::kStages : -1;

  const Sm90PrefillParams& p;
  Shared& shared;
  PrefillRings<T, Tile>& rings;
  int warp;  // among the warps that load the same blocks
  int lane;
  LaneBox<Shared::kKeySlabs> k_box{p, warp, lane};
  LaneBox<Shared::kValueSlabs> v_box{p, warp, lane};
  tile::PipelineState<Tile::kQueryBuffers> q_state = {};
  tile::PipelineState<Tile::kStages> k_state = {};
  tile::PipelineState<Tile::kStages> v_state = {};
  tile::PipelineState<kWorkSlots> work_state = {};
  int round = 0;

  // The page of the keys from `key` on; out of range if no query sees them, so that TMA fills in
  // zeros. Without pages, the sequence.
  __device__ int page_of(const int32_t* table, int64_t stride, const PrefillWork& work,
                         int key) const {
    if (p.common.k_page_table == nullptr) return work.kv_batch;
    const KeyRange keys{key, key + p.box_rows};
    const bool is_seen = KeyRange{work.any_begin[0], work.any_end[0]}.meets(keys) ||
                         KeyRange{work.any_begin[1], work.any_end[1]}.meets(keys);
    return is_seen ? table[work.sequence * stride + (key >> p.log2_page_size)] : p.num_pages;
  }
  __device__ int row_of(const PrefillWork& work, int key) const {
    return p.common.k_page_table == nullptr ? work.kv_begin + key : key & (p.common.page_size - 1);
  }

  __device__ void load_q(const PrefillWork& work) {
    rings.q.producer_acquire(q_state);
    if (lane == 0) rings.q.producer_expect(q_state, Shared::kQBytes);
    __syncwarp();
    if (lane < Shared::kKeySlabs) {
      const uint32_t slot = tile::ptx::shared_address(shared.q[q_state.index]);
      const int batch = p.common.q_starts != nullptr ? 0 : work.sequence;
      tile::ptx::tensor_load(
          slot + lane * Tile::kRows * kSlabBytes, &p.q,
          tile::ptx::Coord{lane * kSlabCols, 0, work.q_begin + (work.first_row >> p.log2_packed),
                           work.head, batch},
          rings.q.full(q_state));
    }
    q_state.advance();
  }
  // Loads one block of k or of v. The page table is read before the wait for a free stage.
  template <int kSlabs>
  __device__ __forceinline__ void load_block(const tile::Pipeline<Tile::kStages>& ring,
                                             tile::PipelineState<Tile::kStages>& state,
                                             const CUtensorMap& map, uint32_t stage,
                                             const LaneBox<kSlabs>& box, const int32_t* table,
                                             int64_t stride, const PrefillWork& work, int block) {
    const int key = block * Tile::kKeys + box.key;
    const int page = box.key < Tile::kKeys ? page_of(table, stride, work, key) : 0;
    ring.producer_acquire(state);
    if (warp == 0 && lane == 0) ring.producer_expect(state, Tile::kKeys * kSlabs * kSlabBytes);
    __syncwarp();
    if (box.key < Tile::kKeys) {
      tile::ptx::tensor_load(
          stage + (box.slab * Tile::kKeys + box.key) * kSlabBytes, &map,
          tile::ptx::Coord{box.slab * kSlabCols, row_of(work, key), work.kv_head, page},
          ring.full(state));
    }
    state.advance();
  }
  __device__ __forceinline__ void load_k(const PrefillWork& work, int block) {
    load_block(rings.k, k_state, p.k, tile::ptx::shared_address(shared.k[k_state.index]), k_box,
               p.common.k_page_table, p.common.k_table_stride, work, block);
  }
  __device__ __forceinline__ void load_v(const PrefillWork& work, int block) {
    load_block(rings.v, v_state, p.v, tile::ptx::shared_address(shared.v[v_state.index]), v_box,
               p.common.v_page_table, p.common.v_table_stride, work, block);
  }

  // Whether the description of a tile depends on memory that an earlier kernel may have written.
  __device__ bool is_work_in_memory() const {
    return p.common.q_starts != nullptr || p.common.kv_starts != nullptr ||
           p.common.kv_lens != nullptr || p.common.mask.intervals != nullptr;
  }

  // Describes the next tile in the next slot and loads its queries. False: no tile is left.
  __device__ __forceinline__ bool prepare_work() {
    rings.work.producer_acquire(work_state);
    PrefillWork& work = shared.works[work_state.index];
    if (round == 0 && is_work_in_memory()) tile::wait_for_previous(Sm90{});
    const bool is_work = make_work<Tile>(p, tile_of_round(round), work);
    if (round == 0) tile::wait_for_previous(Sm90{});
    ++round;
    __syncwarp();
    if (lane == 0) rings.work.producer_commit(work_state);
    if (is_work && work.blocks.first() >= 0) load_q(work);
    work_state.advance();
    return is_work;
  }

  // The first warp: tiles, queries and keys, and 8-bit values as well, whose other warps transpose;
  // values trail the keys by a block, as in the consumers. The next tile is prepared while a tile's
  // blocks are loaded, early enough that nobody waits for its queries.
  __device__ void run() {
    int slot = -1;
    int block = -1;
    int count = 0;  // blocks of the tile so far
    bool is_prepared = false;
    bool is_more = true;
    while (true) {
      if (!is_prepared && is_more && (block < 0 || count == kPrepareAfter)) {
        is_more = prepare_work();
        is_prepared = true;
      }
      if (block < 0) {
        if (!is_more) break;
        slot = (slot + 1) % kWorkSlots;
        is_prepared = false;
        count = 0;
        block = shared.works[slot].blocks.first();
        if (block < 0) continue;
        load_k(shared.works[slot], block);
      }
      const PrefillWork& work = shared.works[slot];
      const int next = work.blocks.before(block);
      if (next >= 0) load_k(work, next);
      if constexpr (Shared::kTurnsV) load_v(work, block);
      block = next;
      ++count;
    }
    tile::release_next(Sm90{});
  }

  // The second warp: values. With small pages a block has many boxes, and issuing them takes the
  // time: then two warps share the keys and two the values.
  template <bool kLoadsKeys>
  __device__ void run_beside() {
    tile::wait_for_previous(Sm90{});
    while (true) {
      rings.work.consumer_wait(work_state);
      const PrefillWork& work = shared.works[work_state.index];
      if (work.head < 0) return;
      for (int block = work.blocks.first(); block >= 0; block = work.blocks.before(block)) {
        if constexpr (kLoadsKeys) {
          load_k(work, block);
        } else {
          load_v(work, block);
        }
      }
      __syncwarp();
      if (lane == 0) rings.work.consumer_release(work_state);
      work_state.advance();
    }
  }
};

// Transposes 8-bit values: three warps beside the producer, from the stages that TMA fills to those
// that WGMMA reads.
//
// A transposed tile has a row for every element of a head and in it a byte for every key, so that
// the keys of one element are contiguous. No instruction transposes bytes; ldmatrix transposes
// pairs of bytes, and two such pairs give, after a byte permutation, four keys of one element. That
// leaves two permuted orders, which the rest of the kernel follows:
//   keys, in each 16: 0 1 8 9, 2 3 10 11, ... which is exactly how the weights lie in registers;
//   elements, in each 16: 0 2 .. 14, 1 3 .. 15. The columns of results keep this order until they
//   are stored.
template <class T, class Tile>
struct PrefillTurner {
  static constexpr int kWarps = 3;
  static constexpr int kBarrier = 15;

  const Sm90PrefillParams& p;
  PrefillShared<T, Tile>& shared;
  PrefillRings<T, Tile>& rings;
  int warp;  // 0 to 2
  int lane;
  tile::PipelineState<kWorkSlots> work_state = {};
  tile::PipelineState<Tile::kStages> state = {};

  // A part is 16 keys of 32 elements. A warp takes every third row of parts, several parts at once,
  // so that their latencies overlap. A lane's offset is computed once: other keys are whole rows
  // away, and other elements are an xor of chunk bits.
  static constexpr int kKeyParts = Tile::kKeys / 16;
  static constexpr int kElementParts = Tile::kValueDim / 32;
  static constexpr int kAtOnce = kElementParts < 4 ? kElementParts : 4;
  static constexpr int kPartsOfSlab = kSlabBytes / 32;

  __device__ uint32_t source_of_lane() const {
    const tile::MatrixRow at = tile::matrix_row_16x32(lane);
    return tile::swizzled(tile::Swizzle::b128,
                          static_cast<uint32_t>(at.row * kSlabBytes + at.byte));
  }
  // Address of part `element_part`; `lane_source` is that of part 0.
  static __device__ __forceinline__ uint32_t source(uint32_t lane_source, int element_part) {
    return (lane_source ^ (32 * (element_part % kPartsOfSlab))) +
           element_part / kPartsOfSlab * Tile::kKeys * kSlabBytes;
  }

  __device__ __forceinline__ void turn_parts(uint32_t from, uint32_t to) const {
    const uint32_t lane_target =
        tile::swizzled(tile::Swizzle::b128, static_cast<uint32_t>(lane * kSlabBytes));
    from += source_of_lane();
#pragma unroll 1
    for (int part = warp; part < kKeyParts; part += kWarps) {
      const uint32_t lane_source = from + part * 16 * kSlabBytes;
      const uint32_t target = to + part / 8 * Tile::kValueDim * kSlabBytes +
                              (lane_target ^ static_cast<uint32_t>(part % 8 * 16));
      TESSERA_UNROLL
      for (int first = 0; first < kElementParts; first += kAtOnce) {
        uint32_t pairs[kAtOnce][4];
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          tile::ptx::ldmatrix_trans(pairs[i], source(lane_source, first + i));
        }
        TESSERA_UNROLL
        for (int i = 0; i < kAtOnce; ++i) {
          const uint32_t words[4] = {__byte_perm(pairs[i][0], pairs[i][1], 0x6420),
                                     __byte_perm(pairs[i][0], pairs[i][1], 0x7531),
                                     __byte_perm(pairs[i][2], pairs[i][3], 0x6420),
                                     __byte_perm(pairs[i][2], pairs[i][3], 0x7531)};
          tile::ptx::stmatrix(target + (first + i) * 32 * kSlabBytes, words);
        }
      }
    }
  }

  // Keys that no query sees may hold NaN, and zero times NaN is not zero.
  __device__ void clear_unseen(const PrefillWork& work, int block, uint32_t from) const {
    const KeyRange any[2] = {{work.any_begin[0], work.any_end[0]},
                             {work.any_begin[1], work.any_end[1]}};
    const uint32_t lane_source = from + source_of_lane();
    for (int part = warp; part < kKeyParts; part += kWarps) {
      const int key = block * Tile::kKeys + 16 * part + lane % 16;
      if (any[0].has(key) || any[1].has(key)) continue;
      for (int element_part = 0; element_part < kElementParts; ++element_part) {
        tile::ptx::store_shared(source(lane_source + part * 16 * kSlabBytes, element_part),
                                uint4{0, 0, 0, 0});
      }
    }
    __syncwarp();
  }

  __device__ __forceinline__ void turn(const PrefillWork& work, int block, bool is_full) {
    rings.v.consumer_wait(state);
    const uint32_t from = tile::ptx::shared_address(shared.v[state.index]);
    if (p.zeroes_v && !is_full) clear_unseen(work, block, from);
    rings.turned.producer_acquire(state);
    turn_parts(from, tile::ptx::shared_address(shared.turned[state.index]));
    tile::ptx::fence_proxy_async_shared();
    tile::ptx::bar_sync(kBarrier, 32 * kWarps);
    if (warp == 0 && lane == 0) {
      rings.turned.producer_commit(state);
      rings.v.consumer_release(state);
    }
    state.advance();
  }

  __device__ void run() {
    while (true) {
      rings.work.consumer_wait(work_state);
      const PrefillWork& work = shared.works[work_state.index];
      if (work.head < 0) return;
      const BlockRanges& blocks = work.blocks;
      for (int block = blocks.first(); block >= 0; block = blocks.before(block)) {
        turn(work, block, blocks.is_full(block));
      }
      tile::ptx::bar_sync(kBarrier, 32 * kWarps);
      if (warp == 0 && lane == 0) rings.work.consumer_release(work_state);
      work_state.advance();
    }
  }
};

}  // namespace tessera::kernels::prefill_sm90
