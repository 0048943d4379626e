// What the device says of itself, its errors, and the one function of the driver that Tessera uses.
// SPDX-License-Identifier: MIT
#include "tests/emulator/runtime/device.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>
#include <string_view>

#include "tests/emulator/runtime/state.h"
#include "tests/emulator/tensor_map.h"

namespace tessera::emulator {
namespace {

// An H200 with little memory, since the host has little.
constexpr int kNumSms = 132, kL2Bytes = 50 << 20, kSharedPerBlock = 227 * 1024;
constexpr int kClockKhz = 1'980'000, kMemoryClockKhz = 3'200'000, kBusBits = 6144;
constexpr int kCudaVersion = 13000;

struct NamedError {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr NamedError kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorInvalidClusterSize, "cudaErrorInvalidClusterSize", "invalid cluster size"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the capture was not initiated in this stream"},
};

const NamedError& describe(cudaError_t error) {
  static constexpr NamedError kOther{cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
  for (const NamedError& known : kErrors) {
    if (known.error == error) return known;
  }
  return kOther;
}

Type to_type(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return Type::u8;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16: return Type::u16;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32: return Type::u32;
    case CU_TENSOR_MAP_DATA_TYPE_INT32: return Type::s32;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64: return Type::u64;
    case CU_TENSOR_MAP_DATA_TYPE_INT64: return Type::s64;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return Type::f16;
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return Type::bf16;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return Type::f64;
    default: return Type::f32;
  }
}

Swizzle to_swizzle(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_32B: return Swizzle::bytes32;
    case CU_TENSOR_MAP_SWIZZLE_64B: return Swizzle::bytes64;
    case CU_TENSOR_MAP_SWIZZLE_128B: return Swizzle::bytes128;
    default: return Swizzle::none;
  }
}

// cuTensorMapEncodeTiled, with the limits that its documentation gives.
CUresult encode_tiled(CUtensorMap* result, CUtensorMapDataType type, cuuint32_t rank, void* base,
                      const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* element_strides, CUtensorMapInterleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  constexpr uint64_t kAlign = 16;
  constexpr cuuint32_t kMaxBox = 256;
  TensorMap map{};
  if (rank == 0 || rank > TensorMap::kMaxRank) return CUDA_ERROR_INVALID_VALUE;
  map.base = reinterpret_cast<uint64_t>(base);
  map.rank = static_cast<uint8_t>(rank);
  map.type = to_type(type);
  map.element_bytes = static_cast<uint8_t>(bytes_of(map.type));
  map.swizzle = to_swizzle(swizzle);
  for (size_t i = 0; i < rank; ++i) {
    map.dims[i] = dims[i];
    map.box[i] = box[i];
    if (dims[i] == 0 || box[i] == 0 || box[i] > kMaxBox) return CUDA_ERROR_INVALID_VALUE;
    if (element_strides != nullptr && element_strides[i] != 1) return CUDA_ERROR_INVALID_VALUE;
    if (i == 0) continue;
    map.strides[i - 1] = strides[i - 1];
    if (strides[i - 1] % kAlign != 0) return CUDA_ERROR_INVALID_VALUE;
  }
  const uint32_t row_bytes = box[0] * map.element_bytes;
  const bool is_row_too_long = map.swizzle != Swizzle::none && row_bytes > span_of(map.swizzle);
  if (map.base % kAlign != 0 || row_bytes % kAlign != 0 || is_row_too_long) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::memset(result, 0, sizeof *result);
  std::memcpy(result, &map, sizeof map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace tessera::emulator

using namespace tessera::emulator;  // NOLINT: the functions of the runtime have C linkage

extern "C" {

// Questions about the device are answered even after a fault.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return finish(); }
cudaError_t cudaDeviceSynchronize() { return finish(); }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strcpy(properties->name, "emulated GPU");
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = kNumSms;
  properties->totalGlobalMem = kDeviceBytes;
  properties->l2CacheSize = kL2Bytes;
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = kSharedPerBlock;
  properties->sharedMemPerMultiprocessor = 228 * 1024;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->regsPerBlock = properties->regsPerMultiprocessor = 65536;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate: *value = kClockKhz; break;
    case cudaDevAttrMemoryClockRate: *value = kMemoryClockKhz; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = kBusBits; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedPerBlock; break;
    case cudaDevAttrMultiProcessorCount: *value = kNumSms; break;
    case cudaDevAttrL2CacheSize: *value = kL2Bytes; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    default: *value = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int) {
  std::snprintf(id, static_cast<size_t>(length), "0000:00:00.0");
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kCudaVersion;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error();
  clear_last_error();
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error(); }
const char* cudaGetErrorName(cudaError_t error) { return describe(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return describe(error).text; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::string_view(name) == "cuTensorMapEncodeTiled";
  *function = is_known ? reinterpret_cast<void*>(&encode_tiled) : nullptr;
  if (result != nullptr) {
    *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return finish();
}

}  // extern "C"
