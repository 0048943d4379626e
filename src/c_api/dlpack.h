// DLPack tensors as TensorViews, and TesseraContext as Context.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "tessera/c.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"
#include "tessera/core/tensor.h"

namespace tessera::c_api {

// Type codes of the DLPack standard that headers older than 1.1 do not name.
inline constexpr int kDlpackBool = 6;
inline constexpr int kDlpackE4m3 = 10;  // float8_e4m3fn
inline constexpr int kDlpackE5m2 = 12;  // float8_e5m2

// An argument in messages: "rms_norm: weight".
struct ArgName {
  std::string_view op;
  std::string_view arg;
};

// Makes `to` the view of a tensor; NULL is refused. A `format` other than AUTO reinterprets bytes
// as FP8 or packed i4, or confirms the tensor's own dtype.
void read_view(TensorView& to, const DLTensor* tensor, ArgName name, int32_t format);

TesseraDType to_c(DType dtype);

// The context of a call, and whether it only asks if the call would be served.
struct CallContext {
  Context ctx;
  bool check_only = false;
};
CallContext to_call_context(const TesseraContext* ctx);

}  // namespace tessera::c_api
