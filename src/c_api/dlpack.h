// DLPack tensors and the C context as Tessera sees them.
// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
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

// How an argument is called in messages: "rms_norm: weight".
struct ArgName {
  std::string_view op;
  std::string_view arg;
};

// The view of a tensor the caller must give; refused if NULL. `format` other than AUTO reinterprets
// bytes as FP8 or packed i4, or confirms the tensor's own dtype.
TensorView required_view(const DLTensor* tensor, ArgName name, int32_t format = TESSERA_DTYPE_AUTO);

// The same for a tensor that may be absent.
std::optional<TensorView> optional_view(const DLTensor* tensor, ArgName name);

TesseraDType to_c(DType dtype);

// A Context, and whether only the support question is asked.
struct CallContext {
  Context ctx;
  bool check_only = false;
};
CallContext to_call_context(const TesseraContext* ctx);

}  // namespace tessera::c_api
