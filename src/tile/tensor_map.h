// Tensor maps for TMA, checked before the driver encodes them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "core/text.h"
#include "tessera/core/dtype.h"
#include "tessera/core/error.h"
#include "tile/swizzle.cuh"

namespace tessera::tile {

inline constexpr int kMaxTensorMapRank = 5;

// What one TMA copy moves: a box of a strided tensor. Dimensions are listed innermost first.
struct TensorMapSpec {
  const void* data = nullptr;               // global memory, aligned to 16 bytes
  DType dtype = DType::bf16;                // i4 has no map: describe its bytes as u8
  int rank = 0;                             // 1 to 5; the copies of tma_tensor.cuh need 2 or more
  int64_t dims[kMaxTensorMapRank] = {};     // elements
  int64_t strides[kMaxTensorMapRank] = {};  // elements; strides[0] is 1
  int box[kMaxTensorMapRank] = {};          // elements, each 1 to 256
  Swizzle swizzle = Swizzle::none;
  // Fetching 256 bytes around every miss takes 6 % of the bandwidth of what is streamed once.
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
};

// Throws, with the values, if TMA cannot copy the tensor.
inline void check_tensor_map(const TensorMapSpec& spec) {
  const auto refuse = [](const auto&... parts) { fail(concat("tensor map: ", parts...)); };
  if (spec.rank < 1 || spec.rank > kMaxTensorMapRank) {
    refuse("rank is ", spec.rank, "; want 1 to ", kMaxTensorMapRank);
  }
  if (spec.dtype == DType::i4) refuse("dtype is i4; describe the packed bytes as u8");
  if (spec.data == nullptr) refuse("data is null");
  if (const auto address = reinterpret_cast<uintptr_t>(spec.data); address % 16 != 0) {
    refuse("data is ", address % 16, " bytes past a multiple of 16; align it");
  }
  const int64_t element_bytes = bit_width(spec.dtype) / 8;
  if (spec.strides[0] != 1)
    refuse("strides[0] is ", spec.strides[0], "; want 1: make it contiguous");
  int64_t box_bytes = element_bytes;
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.dims[i] < 1 || spec.dims[i] > int64_t{1} << 32) {
      refuse("dims[", i, "] is ", spec.dims[i], "; want 1 to 2^32");
    }
    if (spec.box[i] < 1 || spec.box[i] > 256) {
      refuse("box[", i, "] is ", spec.box[i], "; want 1 to 256");
    }
    const int64_t stride_bytes = spec.strides[i] * element_bytes;
    if (i > 0 && (stride_bytes < 0 || stride_bytes % 16 != 0 || stride_bytes >= int64_t{1} << 40)) {
      refuse("strides[", i, "] is ", spec.strides[i], " elements of ", name(spec.dtype), ", ",
             stride_bytes, " bytes; want a multiple of 16 bytes below 2^40");
    }
    box_bytes *= spec.box[i];
  }
  const int64_t inner_bytes = spec.box[0] * element_bytes;
  if (inner_bytes % 16 != 0) {
    refuse("box[0] is ", spec.box[0], " elements of ", name(spec.dtype), ", ", inner_bytes,
           " bytes; want a multiple of 16 bytes");
  }
  if (spec.swizzle != Swizzle::none && inner_bytes > span_bytes(spec.swizzle)) {
    refuse("box[0] is ", inner_bytes, " bytes; a swizzle of ", span_bytes(spec.swizzle),
           " bytes takes at most that: split the box");
  }
  constexpr int64_t kSharedBytes = 227 * 1024;
  if (box_bytes > kSharedBytes) {
    refuse("the box takes ", box_bytes, " bytes; a block has ", kSharedBytes, " of shared memory");
  }
}

// e4m3 and e5m2 are copied as bytes; the type would only matter to reductions, which FP8 lacks.
constexpr CUtensorMapDataType tensor_map_type(DType dtype) {
  switch (dtype) {
    case DType::f32: return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::i32: return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::i64: return CU_TENSOR_MAP_DATA_TYPE_INT64;
    default: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
}

constexpr CUtensorMapSwizzle tensor_map_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::b32: return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::b64: return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::b128: return CU_TENSOR_MAP_SWIZZLE_128B;
    default: return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

// The driver's encoder, looked up at run time so that nothing links against the driver.
inline auto tensor_map_encoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    constexpr unsigned kVersion = 12000;  // the first CUDA that has it
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &entry, kVersion, cudaEnableDefault, &found);
    if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || entry == nullptr) {
      fail(concat("tensor map: the driver offers no cuTensorMapEncodeTiled (",
                  cudaGetErrorString(status), "); it needs a driver for CUDA 12 or later"));
    }
    return reinterpret_cast<Encode>(entry);
  }();
  return encode;
}

inline CUtensorMap make_tensor_map(const TensorMapSpec& spec) {
  check_tensor_map(spec);
  cuuint64_t dims[kMaxTensorMapRank] = {};
  cuuint64_t stride_bytes[kMaxTensorMapRank] = {};  // that of dimension 0 is implied
  cuuint32_t box[kMaxTensorMapRank] = {};
  cuuint32_t steps[kMaxTensorMapRank] = {};
  for (int i = 0; i < spec.rank; ++i) {
    dims[i] = static_cast<cuuint64_t>(spec.dims[i]);
    if (i > 0) {
      stride_bytes[i - 1] = static_cast<cuuint64_t>(spec.strides[i] * bit_width(spec.dtype) / 8);
    }
    box[i] = static_cast<cuuint32_t>(spec.box[i]);
    steps[i] = 1;
  }
  CUtensorMap map{};
  const CUresult status = tensor_map_encoder()(
      &map, tensor_map_type(spec.dtype), static_cast<cuuint32_t>(spec.rank),
      const_cast<void*>(spec.data), dims, stride_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      tensor_map_swizzle(spec.swizzle), spec.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    fail(concat("tensor map: cuTensorMapEncodeTiled answered ", static_cast<int>(status),
                " for rank ", spec.rank, " of ", name(spec.dtype), ", dims[0] ", spec.dims[0],
                ", box[0] ", spec.box[0], ", swizzle ", span_bytes(spec.swizzle), " bytes"));
  }
  return map;
}

}  // namespace tessera::tile
