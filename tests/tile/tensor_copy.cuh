// The tensor copies under test: loads a box, dumps its shared memory, and stores the box.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kernels/launch.h"
#include "tests/gpu.h"
#include "tests/tile/device_array.h"
#include "tile/device_assert.cuh"
#include "tile/ptx/mbarrier.cuh"
#include "tile/ptx/tma_tensor.cuh"
#include "tile/tensor_map.h"

namespace tessera::testing {

using tile::Swizzle;
using tile::TensorMapSpec;
using tile::ptx::Coord;

enum class BoxOut { nothing, store, reduce_add };

template <int kRank>
struct TensorCopyParams {
  CUtensorMap from;
  CUtensorMap to;
  Coord<kRank> at;
  uint8_t* raw;  // [box_bytes]: the box as it lies in shared memory
  int box_bytes;
  bool stores;  // prefetches and stores too, see stores_from
};

// A store or a prefetch, unlike a load, may not start before the tensor.
template <int kRank>
bool stores_from(Coord<kRank> at) {
  return std::all_of(at.at, at.at + kRank, [](int c) { return c >= 0; });
}

// One block. kHinted takes the variants with a cache policy.
template <int kRank, BoxOut kOut, bool kHinted>
__global__ void tensor_copy_sm90_kernel(const __grid_constant__ TensorCopyParams<kRank> p) {
  extern __shared__ __align__(1024) uint8_t box[];
  __shared__ alignas(8) uint64_t barrier_storage;
  const uint32_t barrier = tile::ptx::shared_address(&barrier_storage);
  const uint32_t address = tile::ptx::shared_address(box);
  TESSERA_DEVICE_ASSERT(address % 1024 == 0);
  if (threadIdx.x == 0) {
    tile::ptx::prefetch_tensormap(&p.from);
    tile::ptx::prefetch_tensormap(&p.to);
    tile::ptx::mbarrier_init(barrier, 1);
    tile::ptx::fence_mbarrier_init();
    if (p.stores) tile::ptx::tensor_prefetch(&p.from, p.at);
    // The whole box is counted, also the part of it that lies outside the tensor.
    tile::ptx::mbarrier_arrive_expect_tx(barrier, static_cast<uint32_t>(p.box_bytes));
    if constexpr (kHinted) {
      tile::ptx::tensor_load(address, &p.from, p.at, barrier,
                             tile::ptx::createpolicy_evict_first());
    } else {
      tile::ptx::tensor_load(address, &p.from, p.at, barrier);
    }
  }
  __syncthreads();
  tile::ptx::mbarrier_wait(barrier, 0);
  for (int i = static_cast<int>(threadIdx.x); i < p.box_bytes; i += static_cast<int>(blockDim.x)) {
    p.raw[i] = box[i];
  }
  __syncthreads();
  if (threadIdx.x == 0 && p.stores) {
    if constexpr (kOut == BoxOut::reduce_add) {
      tile::ptx::tensor_reduce_add(&p.to, p.at, address);
    } else if constexpr (kHinted) {
      tile::ptx::tensor_store(&p.to, p.at, address, tile::ptx::createpolicy_evict_last());
    } else {
      tile::ptx::tensor_store(&p.to, p.at, address);
    }
    tile::ptx::bulk_commit_group();
    tile::ptx::bulk_wait_group_read<0>();
    tile::ptx::bulk_wait_group<0>();
  }
  if (threadIdx.x == 0) tile::ptx::mbarrier_inval(barrier);
}

template <int kRank, BoxOut kOut, bool kHinted>
std::vector<uint8_t> copy_box(const TensorMapSpec& from, const TensorMapSpec& to, Coord<kRank> at) {
  int64_t bytes = bit_width(from.dtype) / 8;
  for (int i = 0; i < kRank; ++i) bytes *= from.box[i];
  DeviceArray<uint8_t> raw(static_cast<size_t>(bytes));
  const TensorCopyParams<kRank> params{tile::make_tensor_map(from),
                                       tile::make_tensor_map(to),
                                       at,
                                       raw.data(),
                                       static_cast<int>(bytes),
                                       kOut != BoxOut::nothing && stores_from(at)};
  kernels::launch(tensor_copy_sm90_kernel<kRank, kOut, kHinted>,
                  {.grid = dim3(1), .block = dim3(128), .shared_bytes = static_cast<size_t>(bytes)},
                  params, Context{});
  return raw.read();
}

// A dense tensor whose rows are padded to a stride that the copy engine takes.
template <int kRank>
TensorMapSpec dense_spec(DType dtype, const int (&dims)[kRank], const int (&box)[kRank]) {
  TensorMapSpec spec{.dtype = dtype, .rank = kRank};
  const int64_t step = 128 / bit_width(dtype);  // elements of 16 bytes
  int64_t stride = 1;
  for (int i = 0; i < kRank; ++i) {
    spec.dims[i] = dims[i];
    spec.box[i] = box[i];
    spec.strides[i] = stride;
    stride = i == 0 ? (dims[0] + step - 1) / step * step : stride * dims[i];
  }
  return spec;
}

inline int64_t num_elements(const TensorMapSpec& spec) {
  return spec.strides[spec.rank - 1] * spec.dims[spec.rank - 1];
}

// Calls visit(idx_in_box, offset_in_tensor) for each element of the box in order; the offset is -1
// where the element lies outside the tensor.
template <int kRank, class Visit>
void for_each_in_box(const TensorMapSpec& spec, Coord<kRank> at, Visit visit) {
  int64_t count = 1;
  for (int i = 0; i < kRank; ++i) count *= spec.box[i];
  for (int64_t idx = 0; idx < count; ++idx) {
    int64_t rest = idx;
    int64_t offset = 0;
    bool is_inside = true;
    for (int i = 0; i < kRank; ++i) {
      const int64_t coord = at.at[i] + rest % spec.box[i];
      rest /= spec.box[i];
      is_inside = is_inside && coord >= 0 && coord < spec.dims[i];
      offset += coord * spec.strides[i];
    }
    visit(static_cast<size_t>(idx), is_inside ? offset : -1);
  }
}

}  // namespace tessera::testing
