// Operations on a framework's own objects. A crossing from Python into C costs as much as a small
// operation, so one call reads all tensors, finds the stream and runs. The caller supplies the
// functions that read an object (TesseraObjects of tessera/c.h).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "c_api/call.h"

namespace tessera::c_api {

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
