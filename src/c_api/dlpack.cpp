// DLPack tensors as TensorViews, and TesseraContext as Context.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>

#include "c_api/call.h"

namespace tessera::c_api {
namespace {

// Type codes of the DLPack standard that headers older than 1.1 do not name.
constexpr int kDlpackBool = 6;
constexpr int kDlpackE4m3 = 10;  // float8_e4m3fn
constexpr int kDlpackE5m2 = 12;  // float8_e5m2

constexpr DType kDTypeOf[] = {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::e5m2,
                              DType::i8,  DType::u8,  DType::i4,   DType::i32,  DType::i64};

[[noreturn]] void refuse(ArgName name, std::string_view what) {
  fail(concat(name.op, ": ", name.arg, " ", what));
}

std::string describe(DLDataType type) {
  constexpr std::string_view kCodes[] = {"int",    "uint",    "float", "handle",
                                         "bfloat", "complex", "bool"};
  const int code = type.code;
  std::string text = code <= kDlpackBool ? std::string(kCodes[code])
                                         : concat("DLPack type code ", code, " of width ");
  text += std::to_string(type.bits);
  if (type.lanes != 1) text += concat(" in ", type.lanes, " lanes");
  return text;
}

std::optional<DType> dtype_of_dlpack(DLDataType type) {
  const int key = type.code * 256 + type.bits;
  switch (key) {
    case kDLFloat * 256 + 32: return DType::f32;
    case kDLFloat * 256 + 16: return DType::f16;
    case kDLBfloat * 256 + 16: return DType::bf16;
    case kDlpackE4m3 * 256 + 8: return DType::e4m3;
    case kDlpackE5m2 * 256 + 8: return DType::e5m2;
    case kDLInt * 256 + 8: return DType::i8;
    case kDlpackBool * 256 + 8:
    case kDLUInt * 256 + 8: return DType::u8;
    case kDLInt * 256 + 4:
    case kDLUInt * 256 + 4: return DType::i4;
    case kDLInt * 256 + 32: return DType::i32;
    case kDLInt * 256 + 64: return DType::i64;
    default: return std::nullopt;
  }
}

Device device_of(DLDevice device, ArgName name) {
  int kind = 0;  // copied as bytes: a newer producer may send a value this header's enum lacks
  static_assert(sizeof kind == sizeof device.device_type);
  std::memcpy(&kind, &device.device_type, sizeof kind);
  switch (kind) {
    case kDLCPU:
    case kDLCUDAHost: return cpu_device();
    case kDLCUDA:
    case kDLCUDAManaged:
      if (device.device_id < 0) refuse(name, concat("is on CUDA device ", device.device_id));
      return cuda_device(device.device_id);
    default:
      refuse(name, concat("is on a device of DLPack type ", kind,
                          "; Tessera takes CPU (1), pinned host (3), CUDA (2) and managed (13)"));
  }
}

// Gives bytes the element type the caller names. A byte holds two i4 elements, so for i4 the
// innermost size and the strides of the other axes double.
void apply_format(TensorView& view, int32_t format, ArgName name) {
  if (format == TESSERA_DTYPE_AUTO) return;
  if (format < 0 || format > TESSERA_I64) {
    refuse(name, concat("has format ", format, "; want a TesseraDType from 0 to ", TESSERA_I64));
  }
  const DType wanted = kDTypeOf[format - 1];
  if (view.dtype == wanted) return;
  const bool is_byte = view.dtype == DType::u8 || view.dtype == DType::i8;
  const bool wants_byte = wanted == DType::e4m3 || wanted == DType::e5m2;
  if (!is_byte || !(wants_byte || wanted == DType::i4)) {
    refuse(name, concat("holds ", tessera::name(view.dtype), " but its format is ",
                        tessera::name(wanted), "; only e4m3, e5m2 and i4 may be given as bytes"));
  }
  view.dtype = wanted;
  if (wanted != DType::i4) return;
  if (view.rank == 0) refuse(name, "is a scalar; packed i4 needs at least one axis");
  const size_t last = static_cast<size_t>(view.rank - 1);
  if (view.shape[last] > 1 && view.strides[last] != 1) {
    refuse(name, concat("has stride ", view.strides[last],
                        " along its last axis; packed i4 needs it contiguous"));
  }
  view.shape[last] *= 2;
  view.strides[last] = 1;
  for (size_t d = 0; d < last; ++d) view.strides[d] *= 2;
}

// Sizes and strides up to this bound cannot overflow in the products and sums that operations form.
constexpr int64_t kMost = int64_t{1} << 60;

// Refuses strides that reach beyond kMost. They may double later, for i4, and still not overflow.
void check_strides(const TensorView& view, ArgName name) {
  int64_t reach = 0;  // distance from the first element to the farthest
  for (size_t d = 0; d < static_cast<size_t>(view.rank); ++d) {
    const int64_t stride = view.strides[d];
    int64_t along = 0;
    const bool is_far = stride > kMost || stride < -kMost ||
                        __builtin_mul_overflow(std::max<int64_t>(view.shape[d] - 1, 0),
                                               stride < 0 ? -stride : stride, &along) ||
                        along > kMost - reach;
    if (is_far) {
      refuse(name, concat("has stride ", stride, " along axis ", d, " of size ", view.shape[d],
                          ", which leads beyond 2^60 elements"));
    }
    reach += along;
  }
}

// Reading a misaligned element is undefined behaviour on the CPU; on a GPU it is a fault after
// which every CUDA call of the process fails.
void check_alignment(const TensorView& view, ArgName name) {
  const auto element_bytes = static_cast<uintptr_t>(std::max(1, bit_width(view.dtype) / 8));
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % element_bytes == 0) return;
  refuse(name, concat("begins at an address that is ", address % element_bytes,
                      " bytes off a multiple of ", element_bytes, ", which ",
                      tessera::name(view.dtype), " needs; copy it to aligned memory"));
}

void copy_shape(const DLTensor& tensor, TensorView& view, ArgName name) {
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank) {
    refuse(name, concat("has ", tensor.ndim, " dimensions; want 0 to ", kMaxRank));
  }
  if (tensor.ndim > 0 && tensor.shape == nullptr) refuse(name, "has no shape array");
  view.rank = tensor.ndim;
  const size_t rank = static_cast<size_t>(view.rank);
  int64_t count = 1;
  for (size_t d = 0; d < rank; ++d) {
    view.shape[d] = tensor.shape[d];
    if (view.shape[d] < 0) refuse(name, concat("has size ", view.shape[d], " along axis ", d));
    if (__builtin_mul_overflow(count, std::max<int64_t>(view.shape[d], 1), &count) ||
        count > kMost) {
      refuse(name, "has more than 2^60 elements");
    }
  }
  int64_t stride = 1;
  for (size_t d = rank; d-- > 0;) {
    view.strides[d] = tensor.strides != nullptr ? tensor.strides[d] : stride;
    stride *= std::max<int64_t>(view.shape[d], 1);
  }
  check_strides(view, name);
}

}  // namespace

void read(TensorView& view, const DLTensor* tensor, ArgName name, int32_t format) {
  if (tensor == nullptr) refuse(name, "is NULL; this tensor is not optional");
  const std::optional<DType> dtype = dtype_of_dlpack(tensor->dtype);
  if (!dtype || tensor->dtype.lanes != 1) {
    refuse(name, concat("has dtype ", describe(tensor->dtype),
                        "; Tessera takes float32, float16, bfloat16, float8_e4m3fn, float8_e5m2, "
                        "int8, uint8, bool, int32, int64 and packed 4-bit integers, in one lane"));
  }
  view.dtype = *dtype;
  view.device = device_of(tensor->device, name);
  copy_shape(*tensor, view, name);
  if (tensor->data != nullptr) {
    if (tensor->byte_offset > static_cast<uint64_t>(kMost)) {
      refuse(name, concat("has byte_offset ", tensor->byte_offset, "; want at most 2^60"));
    }
    view.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
    check_alignment(view, name);
  } else if (view.num_elements() > 0) {
    refuse(name, concat("has no data, but ", view.num_elements(), " elements"));
  }
  apply_format(view, format, name);
}

TesseraDType to_c(DType dtype) {
  const auto* found = std::find(std::begin(kDTypeOf), std::end(kDTypeOf), dtype);
  return static_cast<TesseraDType>(found - std::begin(kDTypeOf) + 1);
}

CallContext to_call_context(const TesseraContext* ctx) {
  CallContext call;
  if (ctx == nullptr) return call;
  if (ctx->struct_size < sizeof(TesseraContext)) {
    fail(concat("TesseraContext.struct_size is ", ctx->struct_size, "; set it to sizeof, ",
                sizeof(TesseraContext)));
  }
  call.ctx.stream = static_cast<Stream>(ctx->stream);
  if (ctx->row != nullptr) call.ctx.row = ctx->row;
  call.ctx.batch_invariant = ctx->batch_invariant != 0;
  call.check_only = ctx->check_only != 0;
  return call;
}

}  // namespace tessera::c_api
