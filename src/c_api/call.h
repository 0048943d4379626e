// What every function of the C ABI does around its C++ twin: read the arguments, run the operation
// or answer whether it would run, and turn exceptions into a status.
// SPDX-License-Identifier: MIT
#pragma once

#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "core/text.h"
#include "tessera/c.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"
#include "tessera/core/error.h"
#include "tessera/core/tensor.h"

namespace tessera::c_api {

// Thrown for a check_only call whose answer is no.
struct NotSupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Stores the message of the exception being handled for tessera_last_error, and returns its status.
TesseraStatus record_current_exception() noexcept;

// Runs the body of a C function: no exception leaves it.
template <class Body>
TesseraStatus guarded(Body&& body) noexcept {
  try {
    body();
    return TESSERA_OK;
  } catch (...) {
    return record_current_exception();
  }
}

// Refuses a struct that is NULL or smaller than this library's.
template <class Struct>
void check_struct_size(const Struct* given, std::string_view what, std::string_view type) {
  if (given == nullptr) fail(concat(what, " is NULL"));
  if (given->struct_size >= sizeof(Struct)) return;
  fail(
      concat(type, ".struct_size is ", given->struct_size, "; set it to sizeof, ", sizeof(Struct)));
}

// An argument in messages: "rms_norm: weight".
struct ArgName {
  std::string_view op;
  std::string_view arg;
};

// Makes `to` the view of a DLPack tensor; NULL is refused. A `format` other than AUTO reinterprets
// bytes as FP8 or packed i4, or confirms the tensor's own dtype. (dlpack.cpp)
void read(TensorView& to, const DLTensor* tensor, ArgName name,
          int32_t format = TESSERA_DTYPE_AUTO);

// An absent tensor is an empty view or, where the C++ argument is a std::optional, none.
inline void read_optional(TensorView& to, const DLTensor* tensor, ArgName name) {
  if (tensor != nullptr) read(to, tensor, name);
}
inline void read_optional(std::optional<TensorView>& to, const DLTensor* tensor, ArgName name) {
  if (tensor != nullptr) read(to.emplace(), tensor, name);
}

TesseraDType to_c(DType dtype);

// Whether tensors that belong together are given; refuses some without the others.
inline bool are_given(std::string_view op,
                      std::initializer_list<std::pair<std::string_view, const DLTensor*>> tensors) {
  size_t num_given = 0;
  std::string_view missing;
  std::string names;
  for (const auto& [name, tensor] : tensors) {
    if (tensor != nullptr) ++num_given;
    if (tensor == nullptr && missing.empty()) missing = name;
  }
  if (num_given == 0 || num_given == tensors.size()) return num_given > 0;
  for (const auto& [name, tensor] : tensors) names += concat(names.empty() ? "" : ", ", name);
  fail(concat(op, ": ", missing, " is NULL; ", names, " go together: give all of them, or none"));
}

// A C enum as its C++ twin, which has the same values from 0 up to `last`.
template <class Enum>
Enum to_enum(int32_t value, Enum last, std::string_view what) {
  if (value < 0 || value > static_cast<int>(last)) {
    fail(concat(what, " is ", value, "; want 0 to ", static_cast<int>(last)));
  }
  return static_cast<Enum>(value);
}

// The same where -1 stands for none.
template <class Enum>
std::optional<Enum> to_optional_enum(int32_t value, Enum last, std::string_view what) {
  if (value == -1) return std::nullopt;
  if (value < 0 || value > static_cast<int>(last)) {
    fail(concat(what, " is ", value, "; want 0 to ", static_cast<int>(last), ", or -1 for none"));
  }
  return static_cast<Enum>(value);
}

// Refuses bits that a newer header may define and this library does not know.
inline void check_bits(int32_t bits, int32_t known, std::string_view what) {
  if ((bits & ~known) != 0) {
    fail(concat(what, " is ", bits, "; this library knows the bits of ", known));
  }
}

// A count of keys where its bit is set. C++ writes no bound as -1, so C must not pass a negative.
inline int64_t to_bound(int64_t value, int32_t bit, std::string_view what) {
  if (bit == 0) return -1;
  if (value < 0) {
    fail(
        concat(what, " is ", value, "; want 0 or more, or its bit of `bounds` unset for no bound"));
  }
  return value;
}

// The context of a call, and whether it only asks if the call would be served.
struct CallContext {
  Context ctx;
  bool check_only = false;
};
CallContext to_call_context(const TesseraContext* ctx);

// Runs the operation or, for check_only, throws NotSupported if it would be refused.
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

// Runs a step that prepares tensors; it has no `supports`, so check_only is refused.
template <class Args>
void call_step(std::string_view op, void (*run)(const Args&, const Context&), const Args& args,
               const TesseraContext* c_ctx) {
  const CallContext call_ctx = to_call_context(c_ctx);
  if (call_ctx.check_only) {
    fail(concat(op, ": check_only is set; only operations that choose a kernel answer it"));
  }
  run(args, call_ctx.ctx);
}

}  // namespace tessera::c_api
