// What every function of the C ABI does around its C++ twin: read the arguments, run the operation
// or answer whether it would run, and turn exceptions into a status. The second half does this for
// a framework's own objects.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
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

// Operations on a framework's own objects. A crossing from Python into C costs as much as a small
// operation, so one call reads all tensors, finds the stream and runs. The caller supplies the
// functions that read an object (TesseraObjects of tessera/c.h).

// An operation by name, and its function on objects as tessera_on_objects gives it.
struct ObjectEntry {
  std::string_view op;
  TesseraFunction function;
};

// The generated tables: ops.cpp, weights.cpp and attention.cpp.
std::span<const ObjectEntry> ops_on_objects();
std::span<const ObjectEntry> weights_on_objects();
std::span<const ObjectEntry> attention_on_objects();

// Refuses a reader or a sequence that is NULL where the functions below would call or read it.
inline void check_reader(const TesseraObjects* how, const void* sequence) {
  check_struct_size(how, "on_objects: how", "TesseraObjects");
  if (sequence == nullptr) fail("on_objects: sequence is NULL");
  const std::pair<const char*, bool> functions[] = {
      {"size", how->size != nullptr},
      {"item", how->item != nullptr},
      {"clear_error", how->clear_error != nullptr},
      {"unlock", how->unlock != nullptr},
      {"lock", how->lock != nullptr},
      {"tensor_from_object and capsule_pointer",
       how->tensor_from_object != nullptr || how->capsule_pointer != nullptr}};
  for (const auto& [name, is_there] : functions) {
    if (!is_there) fail(concat("TesseraObjects.", name, " is NULL; a reader needs it"));
  }
}

inline bool read_object(const TesseraObjects& how, void* object, DLTensor& tensor) {
  if (how.tensor_from_object != nullptr) return how.tensor_from_object(object, &tensor) == 0;
  const void* managed = how.capsule_pointer(object, "dltensor");
  if (managed == nullptr) return false;
  tensor = static_cast<const DLManagedTensor*>(managed)->dl_tensor;
  return true;
}

// The tensors of a sequence: pointers[i] is null where the i-th is absent.
template <size_t kCount>
struct Tensors {
  DLTensor storage[kCount];
  const DLTensor* pointers[kCount] = {};

  bool read_all(const TesseraObjects& how, void* sequence) {
    const intptr_t size = how.size(sequence);
    if (size < 0 || size > static_cast<intptr_t>(kCount)) return false;
    for (intptr_t i = 0; i < size; ++i) {
      void* object = how.item(sequence, i);
      if (object == how.absent) continue;
      if (object == nullptr || !read_object(how, object, storage[i])) return false;
      pointers[i] = &storage[i];
    }
    return true;
  }
};

// Asks the framework for its current stream if the first tensor is on a GPU.
inline bool find_stream(const TesseraObjects& how, const DLTensor* first, void*& stream) {
  if (how.current_stream == nullptr || first == nullptr) return true;
  if (first->device.device_type != kDLCUDA) return true;
  return how.current_stream(kDLCUDA, first->device.device_id, &stream) == 0;
}

// The answer if an object cannot be read: the caller then borrows the tensors one by one.
inline int unread(const TesseraObjects& how) {
  how.clear_error();
  return -1;
}

// Reads up to kCount tensors, finds the stream, and calls `call` with both. The framework's lock is
// released during `call`.
template <size_t kCount, class Call>
int run_on_objects(const TesseraObjects* how, void* sequence, const TesseraContext* ctx,
                   Call&& call) {
  const TesseraStatus status = guarded([&] { check_reader(how, sequence); });
  if (status != TESSERA_OK) return status;
  Tensors<kCount> tensors;
  if (!tensors.read_all(*how, sequence)) return unread(*how);
  TesseraContext current{sizeof(TesseraContext), nullptr, nullptr, 0, 0};
  if (ctx == nullptr) {
    if (!find_stream(*how, tensors.pointers[0], current.stream)) return unread(*how);
    ctx = &current;
  }
  void* state = how->unlock();
  const int result = call(tensors.pointers, ctx);
  how->lock(state);
  return result;
}

// A C function with kCount tensors and then scalars as its parameters.
template <auto kOp, size_t kCount, class... Scalars>
int run(const TesseraObjects* how, void* sequence, const TesseraContext* ctx, Scalars... scalars) {
  const auto run_op = [&](const DLTensor* const* tensors, const TesseraContext* found) {
    return [&]<size_t... kIndex>(std::index_sequence<kIndex...>)->int {
      return kOp(tensors[kIndex]..., scalars..., found);
    }
    (std::make_index_sequence<kCount>());
  };
  return run_on_objects<kCount>(how, sequence, ctx, run_op);
}

// A C function with a struct of arguments, which has its size, then all tensors, then the scalars
// from byte kScalars on. The caller gives the struct without its tensors.
template <auto kOp, class Args, size_t kScalars>
int run_struct(const TesseraObjects* how, void* sequence, const TesseraContext* ctx,
               const Args* given) {
  static_assert(std::is_standard_layout_v<Args> && std::is_trivially_copyable_v<Args>);
  constexpr size_t kCount = (kScalars - sizeof given->struct_size) / sizeof(const DLTensor*);
  const auto run_op = [&](const DLTensor* const* tensors, const TesseraContext* found) -> int {
    if (given == nullptr || given->struct_size < sizeof(Args)) {
      return kOp(given, found);  // refuses the struct
    }
    Args args = *given;
    auto* fields = reinterpret_cast<std::byte*>(&args) + sizeof args.struct_size;
    std::memcpy(fields, tensors, kCount * sizeof *tensors);
    return kOp(&args, found);
  };
  return run_on_objects<kCount>(how, sequence, ctx, run_op);
}

template <auto kOp, size_t kCount, class... Scalars>
ObjectEntry entry(std::string_view op) {
  return {op, reinterpret_cast<TesseraFunction>(&run<kOp, kCount, Scalars...>)};
}

template <auto kOp, class Args, size_t kScalars>
ObjectEntry struct_entry(std::string_view op) {
  return {op, reinterpret_cast<TesseraFunction>(&run_struct<kOp, Args, kScalars>)};
}

}  // namespace tessera::c_api
