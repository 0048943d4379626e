// Operations on a framework's objects, all read in the same call, by functions the caller names.
// SPDX-License-Identifier: MIT
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "c_api/status.h"
#include "core/text.h"
#include "tessera/c.h"
#include "tessera/core/error.h"

namespace {

using tessera::concat;
using tessera::fail;

// Refuses a reader, or a sequence, that the functions below would call or read at NULL.
void check_reader(const TesseraObjects* how, const void* sequence) {
  if (how == nullptr) fail("on_objects: how is NULL");
  if (how->struct_size < sizeof(TesseraObjects)) {
    fail(concat("TesseraObjects.struct_size is ", how->struct_size, "; set it to sizeof, ",
                sizeof(TesseraObjects)));
  }
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

bool read(const TesseraObjects& how, void* object, DLTensor& tensor) {
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
      if (object == nullptr || !read(how, object, storage[i])) return false;
      pointers[i] = &storage[i];
    }
    return true;
  }
};

// Asks for the current stream where there is one to ask for.
bool find_stream(const TesseraObjects& how, const DLTensor* first, void*& stream) {
  if (how.current_stream == nullptr || first == nullptr) return true;
  if (first->device.device_type != kDLCUDA) return true;
  return how.current_stream(kDLCUDA, first->device.device_id, &stream) == 0;
}

int unread(const TesseraObjects& how) {
  how.clear_error();
  return -1;
}

// Reads kCount tensors, finds the stream and calls `call` with both, other threads let in.
template <size_t kCount, class Call>
int run_on_objects(const TesseraObjects* how, void* sequence, const TesseraContext* ctx,
                   Call&& call) {
  const TesseraStatus status = tessera::c_api::guarded([&] { check_reader(how, sequence); });
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

template <auto kOp, size_t... kIndex>
int call(const DLTensor* const* tensors, std::index_sequence<kIndex...>, auto... rest) {
  return kOp(tensors[kIndex]..., rest...);
}

template <auto kOp, size_t kCount, class... Scalars>
int run(const TesseraObjects* how, void* sequence, const TesseraContext* ctx, Scalars... scalars) {
  const auto run_op = [&](const DLTensor* const* tensors, const TesseraContext* found) {
    return call<kOp>(tensors, std::make_index_sequence<kCount>(), scalars..., found);
  };
  return run_on_objects<kCount>(how, sequence, ctx, run_op);
}

// A struct of arguments has its size, then all its tensors, then its scalars from byte kScalars on.
template <auto kOp, class Args, size_t kScalars>
int run_struct(const TesseraObjects* how, void* sequence, const TesseraContext* ctx,
               const Args* given) {
  static_assert(std::is_standard_layout_v<Args> && std::is_trivially_copyable_v<Args>);
  constexpr size_t kCount = (kScalars - sizeof given->struct_size) / sizeof(const DLTensor*);
  const auto run_op = [&](const DLTensor* const* tensors, const TesseraContext* found) -> int {
    if (given == nullptr || given->struct_size < sizeof(Args)) {
      return kOp(given, found);  // which refuses it
    }
    Args args = *given;
    auto* fields = reinterpret_cast<std::byte*>(&args) + sizeof args.struct_size;
    std::memcpy(fields, tensors, kCount * sizeof *tensors);
    return kOp(&args, found);
  };
  return run_on_objects<kCount>(how, sequence, ctx, run_op);
}

struct Entry {
  std::string_view op;
  TesseraFunction function;
};

// An operation with the number of its tensors and the types of its scalars.
template <auto kOp, size_t kCount, class... Scalars>
Entry entry(std::string_view op) {
  return {op, reinterpret_cast<TesseraFunction>(&run<kOp, kCount, Scalars...>)};
}

// The same with a struct, and the offset of the first field that is no tensor, or its size.
template <auto kOp, class Args, size_t kScalars>
Entry struct_entry(std::string_view op) {
  return {op, reinterpret_cast<TesseraFunction>(&run_struct<kOp, Args, kScalars>)};
}

const Entry kEntries[] = {
    entry<tessera_rms_norm, 6, float, int32_t>("rms_norm"),
    entry<tessera_layer_norm, 7, float, int32_t>("layer_norm"),
    entry<tessera_rope, 4, int32_t>("rope"),
    entry<tessera_activation, 3, int32_t>("activation"),
    entry<tessera_softmax, 3, float>("softmax"),
    entry<tessera_embedding, 3>("embedding"),
    entry<tessera_copy, 2>("copy"),
    entry<tessera_quantize, 4, int32_t, int32_t>("quantize"),
    entry<tessera_dequantize, 4, int32_t>("dequantize"),
    entry<tessera_reduce, 2, int32_t>("reduce"),
    entry<tessera_argmax, 2>("argmax"),
    entry<tessera_gemm, 7, int32_t, int32_t, int32_t>("gemm"),
    entry<tessera_pack_gate_up, 3>("pack_gate_up"),
    entry<tessera_prune_2_4, 3>("prune_2_4"),
    entry<tessera_expand_2_4, 3>("expand_2_4"),
    entry<tessera_gemm_2_4, 4>("gemm_2_4"),
    entry<tessera_kv_copy_pages, 6, int32_t, int32_t>("kv_copy_pages"),
    struct_entry<tessera_attention_prefill, TesseraAttentionArgs,
                 offsetof(TesseraAttentionArgs, left)>("attention_prefill"),
    struct_entry<tessera_attention_decode, TesseraDecodeAttentionArgs,
                 offsetof(TesseraDecodeAttentionArgs, window)>("attention_decode"),
    struct_entry<tessera_attention_merge, TesseraMergeAttentionArgs,
                 sizeof(TesseraMergeAttentionArgs)>("attention_merge"),
    struct_entry<tessera_attention_cascade, TesseraCascadeAttentionArgs,
                 offsetof(TesseraCascadeAttentionArgs, longest)>("attention_cascade"),
    struct_entry<tessera_kv_append, TesseraKvAppendArgs, offsetof(TesseraKvAppendArgs, rope_style)>(
        "kv_append"),
    struct_entry<tessera_kv_gather, TesseraKvGatherArgs, offsetof(TesseraKvGatherArgs, k_format)>(
        "kv_gather"),
};

}  // namespace

TesseraFunction tessera_on_objects(const char* op) {
  if (op == nullptr) return nullptr;
  for (const Entry& entry : kEntries) {
    if (entry.op == op) return entry.function;
  }
  return nullptr;
}
