// What the Hopper decode kernels read, the shapes they are compiled for, and their shared memory.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>
#include <vector_types.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/attention/decode/sm90/plan.h"
#include "kernels/attention/params.h"
#include "tile/swizzle.cuh"

namespace tessera::kernels::decode_sm90 {

// Where scales lie; strides in bytes. The scales of the rows of one page and head lie side by side,
// or those of a head's columns, once for every 32 rows.
struct ScaleParams {
  const char* data;
  uint32_t head;
  uint32_t page;
  uint32_t group;  // columns: from one group of 32 rows to the next
};

// The newest keys of every sequence in 16 bits: [tail, 32, head, element]; strides in elements.
struct TailParams {
  const void* data;
  const int32_t* tails;  // [batch]: the tail of each sequence
  int64_t tail;
  int64_t row;
  int64_t head;
};

// The newest token of every sequence, which kernels that append it rotate and store. Strides in
// elements; in pages `batch` is that of a page.
struct NewestParams {
  const void* k;  // [sequence, head, element], before the rotation
  const void* v;
  RowStrides k_strides;
  RowStrides v_strides;
  void* k_pages;
  void* v_pages;
  RowStrides k_page_strides;
  RowStrides v_page_strides;
  int num_pages;
  const void* positions;  // [sequence]; int64_t or int32_t, see has_long_positions
  const float* table;     // [num_positions, kD]: cosines, then sines
  int64_t num_positions;
  bool has_long_positions;
  bool is_settled;  // all but q, k and v may be read before the previous kernel has ended
};

inline constexpr int kInverseBits = 20;

struct Sm90DecodeParams {
  // Boxes of 16 rows of one head, or of 32 if these lie in one page and one panel: [page, head,
  // panel, row, byte].
  CUtensorMap k;
  CUtensorMap v;
  const void* q;
  void* out;
  float* lse;            // null: not wanted
  RowStrides q_strides;  // a row is a token
  RowStrides out_strides;
  RowStrides lse_strides;
  const int32_t* seq_lens;
  const int32_t* page_table;  // null: sequence s has page s to itself
  int64_t table_stride;
  const int32_t* tree;  // null: causal
  ScaleParams k_scales;
  ScaleParams v_scales;
  TailParams k_tail;
  const float* k_head_scales;  // fp8; null: 1
  const float* v_head_scales;
  int k_head_scale_step;  // 0: one for all heads
  int v_head_scale_step;
  int log2_boxes_per_page;
  int box_mask;  // of a box's index within its page; all ones without pages
  bool has_long_boxes;
  uint64_t cache_policy;  // L2 policy of the copies
  int num_kv_heads;
  int group;               // query heads that share a KV head
  int q_len;               // tokens
  uint32_t inverse_group;  // 2^kInverseBits / group, rounded up
  int rows;                // queries that share a KV head: group * q_len
  int window;              // kUnbounded: none
  ScoreParams scores;
  int num_row_groups;
  int num_sequences;
  // 2^log2_parts blocks share the keys of one sequence and KV head; each leaves a partial result.
  int log2_parts;
  int longest;  // upper bound of the sequences' keys
  DecodeEarly early;
  float4* partial_o;
  float4* partial_sums;  // reference, sum, offset
  uint32_t* tickets;     // [sequences * row groups, KV heads]; 0 before and after a call
  NewestParams newest;   // kernels that append
};
static_assert(std::is_trivially_copyable_v<Sm90DecodeParams>);

// A row of kD elements lies in shared memory in panels of at most 128 bytes, which is what TMA
// swizzles. A block processes kQueries queries of one KV head, 4 or a multiple of 8.
template <class K_, class V_, int kD_, int kQueries, int kWarps_, bool kIsGeneral_,
          bool kIsLean_ = false, bool kAppends_ = false>
struct DecodeTile {
  using K = K_;
  using V = V_;
  static_assert(K::kBits == V::kBits);
  static constexpr int kD = kD_;
  static constexpr int kQuads = kD / 4;
  static constexpr bool kHasOffset = V::kNumScales == 2 || V::kValueBase != 0;
  static constexpr int kTiles = (kQueries + 7) / 8;
  static constexpr int kRows = 8 * kTiles;
  // Four queries fill half of a product's columns. The lanes of the other half then take the scores
  // of half of the keys.
  static constexpr bool kIsNarrow = kQueries < 8;
  static constexpr int kBoxesOfLane = kIsNarrow ? 1 : 2;  // boxes whose scores a lane holds
  // 2^kLog2Turns leaves take steps in turn (cut.h): a step of codes is few bytes, and neighbouring
  // steps are contiguous. Keys with scales by column have no registers left for it.
  static constexpr int kLog2Turns = K::kBits == 16 || K::kHasColumns ? 0 : kD <= 128 ? 3 : 2;
  static constexpr int kWarps = kWarps_;
  static constexpr int kLog2Warps = std::countr_zero(static_cast<unsigned>(kWarps));
  static constexpr int kThreads = 32 * kWarps;
  static constexpr bool kIsGeneral = kIsGeneral_;
  // 16 KB in flight per warp instead of a full ring: for long sequences 64 KB per SM saturates
  // DRAM, and more is slower.
  static constexpr bool kIsLean = kIsLean_;
  // The newest token is rotated and stored on the way (newest.cuh).
  static constexpr bool kAppends = kAppends_;
  static constexpr int kRowBytes = kD * K::kBits / 8;
  static constexpr int kPanelBytes = kRowBytes % 128 == 0  ? 128
                                     : kRowBytes % 64 == 0 ? 64
                                     : kRowBytes % 32 == 0 ? 32
                                                           : 16;
  static constexpr int kPanels = kRowBytes / kPanelBytes;
  static constexpr int kPanelChunks = kPanelBytes / 16;
  static constexpr int kPanelSize = kBoxKeys * kPanelBytes;
  static constexpr tile::Swizzle kSwizzle = tile::swizzle_of_span(kPanelBytes);
  static constexpr int kBoxBytes = kBoxKeys * kRowBytes;
  // The keys of a step, or its values.
  static constexpr int kHalfBytes = 2 * kBoxBytes;
  // 4-bit keys and values share a slot and a barrier: half as many copies to issue and wait for.
  static constexpr bool kIsJoint = K::kBits == 4;
  static constexpr int kSlotBytes = kIsJoint ? 2 * kHalfBytes : kHalfBytes;
  // Scales of a slot, those of keys first.
  static constexpr int kKeyScaleBytes = K::kHasColumns ? kD * 4 : kStepKeys * 2 * K::kNumScales;
  static constexpr int kValueScaleBytes = kStepKeys * 2 * V::kNumScales;
  static constexpr int kScaleBytes =
      kIsJoint ? kKeyScaleBytes + kValueScaleBytes : std::max(kKeyScaleBytes, kValueScaleBytes);
  // The newest 32 keys in 16 bits; padded, so that rows start in different banks.
  static constexpr int kTailPitch = 2 * kD + 16;
  static constexpr int kTailBytes = K::kHasColumns ? kStepKeys * kTailPitch : 0;
  // Eight warps per SM keep enough 16-bit keys in flight. Codes are fewer bytes and more
  // arithmetic: sixteen warps, with half the registers each.
  static constexpr bool kIsDense = K::kBits < 16 && kTiles == 1 && kD <= 128 && !kIsGeneral;
  // Small blocks that append serve few heads, at most one on an SM: their rings hold whole leaves,
  // which arrive while the previous kernel ends.
  static constexpr int kWarpsOnSm = kIsDense                             ? 16
                                    : kHalfBytes > 8192                  ? 4
                                    : kAppends&& kWarps == 4 && !kIsLean ? 4
                                                                         : 8;
  static constexpr int kBlocksOnSm = std::max(kWarpsOnSm / kWarps, 1);
  // Where the state of a leaf waits for its sibling in the tree: the lowest level, used most, in
  // registers if there are enough; the next levels in shared memory. The rings leave no L1 cache,
  // so anything beyond goes to global memory, which is slow.
  static constexpr bool kKeepsLowest = !kIsDense && kD * kTiles <= 128;
  static constexpr bool kHasWaitingRoom = !kIsGeneral && (kWarps == 8 || kIsLean) &&
                                          (kIsNarrow ? !K::kHasColumns : !kIsDense && kD <= 128);
  // The lowest level in shared memory, and the number of levels there: 16 queries have room for
  // one.
  static constexpr int kFirstSharedLevel = kKeepsLowest || kIsNarrow ? 1 : 0;
  static constexpr int kSharedLevels = !kHasWaitingRoom ? 0 : kTiles == 1 ? 2 : 1;
  // float4s of a lane's state: o, then references and sums, then offsets. With four queries only
  // half of the lanes have a state.
  static constexpr int kStateQuads = kD / 16 + (kHasOffset ? 2 : 1);
  static constexpr int kWaitingBytes =
      kSharedLevels * kTiles * kStateQuads * (kIsNarrow ? 16 : 32) * 16;
  // Shared memory for a warp's slots. Sixteen warps need fewer each; L1 gets the rest.
  static constexpr int kWarpBytes =
      kIsDense
          ? 9 * 1024
          : (220 * 1024 - kBlocksOnSm * kTailBytes) / std::max(kWarpsOnSm, kWarps) - kWaitingBytes;
  static constexpr int kDepth =
      kIsLean ? 16 * 1024 / kSlotBytes
              : std::clamp(kWarpBytes / (kSlotBytes + kScaleBytes + 8), 2, 16);
};

// Whether blocks prefetch into L2 while the previous kernel runs. Only where bandwidth is the
// limit: for 4-bit codes, and for few heads of short sequences, issuing the prefetch costs more
// than it saves. Kernels that append load their first steps themselves by then.
template <class Tile, int kCluster>
inline constexpr bool kPrefetches =
    Tile::K::kBits >= 8 && !Tile::kIsGeneral && kCluster <= 2 && !Tile::kAppends;

template <class Tile>
struct alignas(1024) Sm90DecodeShared {
  static constexpr int kPitch = Tile::kD + 4;  // rows start in different banks
  static constexpr int kScaleSlot = std::max(Tile::kScaleBytes, 16);
  union {
    char slots[Tile::kWarps][Tile::kDepth][Tile::kSlotBytes];
    float o[Tile::kWarps][Tile::kRows][kPitch];
  };
  alignas(16) char scales[Tile::kWarps][Tile::kDepth][kScaleSlot];
  alignas(16) char tail[std::max(Tile::kTailBytes, 16)];
  float4 waiting[Tile::kWarps][std::max(Tile::kWaitingBytes / 16, 1)];
  uint64_t full[Tile::kWarps][Tile::kDepth];
  uint64_t tail_full;
  float reference[Tile::kWarps][Tile::kRows];
  float sum[Tile::kWarps][Tile::kRows];
  float offset[Tile::kWarps][Tile::kRows];
  float4 node[Tile::kRows];  // reference, sum and offset of the block
  bool is_last;
};

// The token of one of the queries that share a KV head: query / group. Exact for 16 tokens and
// groups of up to kMostGroup.
__device__ inline int token_of(const Sm90DecodeParams& p, int query) {
  return static_cast<int>(static_cast<uint32_t>(query) * p.inverse_group >> kInverseBits);
}

}  // namespace tessera::kernels::decode_sm90
