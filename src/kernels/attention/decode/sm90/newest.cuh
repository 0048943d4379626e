// The newest token of a sequence on its way into the cache: its queries and its key are rotated in
// registers, key and value are put into the step that TMA has loaded without them, and stored.
// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/attention/decode/sm90/ring.cuh"
#include "kernels/attention/decode/sm90/scores.cuh"
#include "kernels/rotate.cuh"
#include "tile/convert.cuh"
#include "tile/fragment.cuh"
#include "tile/ptx/shared.cuh"
#include "tile/unroll.cuh"

namespace tessera::kernels::decode_sm90 {

// Words of two elements, from each half of a head: rope pairs element i with element i + kD / 2.
struct HeadWords {
  uint32_t first;
  uint32_t second;

  template <class T>
  __device__ __forceinline__ void rotate(float2 cosines, float2 sines) {
    const float2 a = tile::pair_to_floats<T>(first), b = tile::pair_to_floats<T>(second);
    first = tile::pack_pair<T>(rotate_first(a.x, b.x, cosines.x, sines.x),
                               rotate_first(a.y, b.y, cosines.y, sines.y));
    second = tile::pack_pair<T>(rotate_second(a.x, b.x, cosines.x, sines.x),
                                rotate_second(a.y, b.y, cosines.y, sines.y));
  }
};

// One warp's part of it. All warps rotate their queries; the one whose run ends with the newest key
// appends it, a pair of words for each of its first kD / 4 lanes.
template <class Tile>
class Newest {
 public:
  using T = typename Tile::K::T;
  static constexpr int kD = Tile::kD;
  static constexpr int kLanes = kD / 4;
  static_assert(Tile::K::kBits == 16 && kD % 32 == 0 && kLanes <= 32);

  // Loads what does not depend on the kernel in front: angles, and the key's place.
  __device__ __forceinline__ void start(const Sm90DecodeParams& p, const KeyRun& run, int lane) {
    const NewestParams& newest = p.newest;
    const int64_t position = newest.has_long_positions
                                 ? static_cast<const int64_t*>(newest.positions)[run.sequence]
                                 : static_cast<const int32_t*>(newest.positions)[run.sequence];
    const bool is_inside = position >= 0 && position < newest.num_positions;
    const float* table = newest.table + (is_inside ? position * kD : 0);
    const auto angles = [&](int element) {
      return is_inside ? *reinterpret_cast<const float2*>(table + element)
                       : float2{__int_as_float(0x7fffffff), __int_as_float(0x7fffffff)};
    };
    TESSERA_UNROLL
    for (int step = 0; step < kD / 32; ++step) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        const int element = 16 * step + 8 * reg + 2 * (lane % 4);
        cosines_[step][reg] = angles(element);
        sines_[step][reg] = angles(kD / 2 + element);
      }
    }
    const int last = run.len - 1;
    const bool is_mine =
        run.len > 0 && last / kStepKeys >= run.steps.begin && last / kStepKeys < run.steps.end;
    step_ = is_mine ? last / kStepKeys : -1;
    row_ = last % kStepKeys;
    if (!is_mine) return;
    if (lane < kLanes) {
      key_cosines_ = angles(2 * lane);
      key_sines_ = angles(kD / 2 + 2 * lane);
    }
    const int box = last / kBoxKeys;
    page_ = p.page_table == nullptr
                ? run.sequence
                : p.page_table[run.sequence * p.table_stride + (box >> p.log2_boxes_per_page)];
    page_row_ = kBoxKeys * (box & p.box_mask) + last % kBoxKeys;
  }

  // Loads key and value, rotates the key and, if this warp `stores`, writes both to their page. A
  // page that does not exist is not written.
  __device__ __forceinline__ void load(const Sm90DecodeParams& p, const KeyRun& run, bool stores,
                                       int lane) {
    if (step_ < 0 || lane >= kLanes) return;
    const NewestParams& newest = p.newest;
    key_ = words_of(newest.k, newest.k_strides, run, lane);
    value_ = words_of(newest.v, newest.v_strides, run, lane);
    key_.template rotate<T>(key_cosines_, key_sines_);
    if (!stores || static_cast<unsigned>(page_) >= static_cast<unsigned>(newest.num_pages)) return;
    store(newest.k_pages, newest.k_page_strides, run.kv_head, lane, key_);
    store(newest.v_pages, newest.v_page_strides, run.kv_head, lane, value_);
  }

  // The queries of a tile, as order_q loads them.
  __device__ __forceinline__ void rotate(uint32_t (&q)[kD / 16][2]) const {
    TESSERA_UNROLL
    for (int step = 0; step < kD / 32; ++step) {
      TESSERA_UNROLL
      for (int reg = 0; reg < 2; ++reg) {
        HeadWords words{q[step][reg], q[step + kD / 32][reg]};
        words.rotate<T>(cosines_[step][reg], sines_[step][reg]);
        q[step][reg] = words.first;
        q[step + kD / 32][reg] = words.second;
      }
    }
  }

  // Overwrites the newest row of a step's keys, or values, in shared memory. Nothing is loaded into
  // that slot after it.
  __device__ __forceinline__ void put_key(int step, uint32_t keys, int lane) const {
    put(step, keys, lane, key_);
  }
  __device__ __forceinline__ void put_value(int step, uint32_t values, int lane) const {
    put(step, values, lane, value_);
  }

 private:
  static __device__ __forceinline__ HeadWords words_of(const void* data, const RowStrides& strides,
                                                       const KeyRun& run, int lane) {
    const T* head =
        static_cast<const T*>(data) + run.sequence * strides.batch + run.kv_head * strides.head;
    return {*reinterpret_cast<const uint32_t*>(head + 2 * lane),
            *reinterpret_cast<const uint32_t*>(head + kD / 2 + 2 * lane)};
  }

  __device__ __forceinline__ void store(void* pages, const RowStrides& strides, int head, int lane,
                                        const HeadWords& words) const {
    T* row = static_cast<T*>(pages) + page_ * strides.batch + page_row_ * strides.row +
             head * strides.head;
    *reinterpret_cast<uint32_t*>(row + 2 * lane) = words.first;
    *reinterpret_cast<uint32_t*>(row + kD / 2 + 2 * lane) = words.second;
  }

  __device__ __forceinline__ void put(int step, uint32_t half, int lane,
                                      const HeadWords& words) const {
    if (step != step_) return;
    if (lane < kLanes) {
      const uint32_t box = half + row_ / kBoxKeys * Tile::kBoxBytes;
      const auto at = [&](int byte) {
        return box + place<Tile>(row_ % kBoxKeys, byte / 16) + byte % 16;
      };
      tile::ptx::store_shared(at(4 * lane), words.first);
      tile::ptx::store_shared(at(kD + 4 * lane), words.second);
    }
    __syncwarp();
  }

  float2 cosines_[kD / 32][2], sines_[kD / 32][2];  // of a lane's elements of the queries
  float2 key_cosines_, key_sines_;                  // and of the key
  int step_, row_;                                  // the key's step, -1: another warp's, and row
  int page_, page_row_;
  HeadWords key_, value_;
};

struct NoNewest {};
template <class Tile, bool kAppends = Tile::kAppends>
struct NewestOfTile {
  using Type = NoNewest;
};
template <class Tile>
struct NewestOfTile<Tile, true> {
  using Type = Newest<Tile>;
};
template <class Tile>
using NewestOf = typename NewestOfTile<Tile>::Type;

}  // namespace tessera::kernels::decode_sm90
