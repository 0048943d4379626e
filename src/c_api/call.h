// What every operation of the C ABI does around its C++ twin: arguments in, and run or answer.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "c_api/dlpack.h"
#include "c_api/status.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::c_api {

// A C enum as its C++ twin, which has the same values from 0 up to `last`.
template <class Enum>
Enum to_enum(int32_t value, Enum last, std::string_view what) {
  if (value < 0 || value > static_cast<int>(last)) {
    fail(concat(what, " is ", value, "; want 0 to ", static_cast<int>(last)));
  }
  return static_cast<Enum>(value);
}

// Refuses a struct of arguments that is absent or older than this library's.
template <class Args>
void check_struct_size(const Args* args, std::string_view op, std::string_view type) {
  if (args == nullptr) fail(concat(op, ": args is NULL"));
  if (args->struct_size >= sizeof(Args)) return;
  fail(concat(type, ".struct_size is ", args->struct_size, "; set it to sizeof, ", sizeof(Args)));
}

// Of an argument that an empty view stands in for where it is absent.
inline TensorView view_or_empty(const DLTensor* tensor, ArgName name) {
  return optional_view(tensor, name).value_or(TensorView{});
}

// Runs the operation, or answers whether it would be served.
template <class Args>
void call(std::string_view op, void (*run)(const Args&, const Context&), const Args& args,
          const TesseraContext* c_ctx) {
  const CallContext call_ctx = to_call_context(c_ctx);
  if (!call_ctx.check_only) return run(args, call_ctx.ctx);
  if (!supports(args, call_ctx.ctx)) {
    throw NotSupported(
        concat(op, ": the operation refuses these arguments, or no row takes them on this device"));
  }
}

// Runs a step that prepares tensors and has no `supports` to answer with.
template <class Args>
void call_step(std::string_view op, void (*run)(const Args&, const Context&), const Args& args,
               const TesseraContext* c_ctx) {
  const CallContext call_ctx = to_call_context(c_ctx);
  if (call_ctx.check_only) {
    fail(concat(op, ": check_only is set; it is for operations that choose a kernel: unset it"));
  }
  run(args, call_ctx.ctx);
}

}  // namespace tessera::c_api
