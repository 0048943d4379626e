// Operations on a framework's objects, all read in the same call, by functions the caller names.
// SPDX-License-Identifier: MIT
#include <cstddef>
#include <string_view>
#include <utility>

#include "tessera/c.h"

namespace {

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

template <auto kOp, size_t... kIndex>
int call(const DLTensor* const* tensors, std::index_sequence<kIndex...>, auto... rest) {
  return kOp(tensors[kIndex]..., rest...);
}

template <auto kOp, size_t kCount, class... Scalars>
int run(const TesseraObjects* how, void* sequence, const TesseraContext* ctx, Scalars... scalars) {
  if (how->struct_size < sizeof(TesseraObjects)) return -1;
  Tensors<kCount> tensors;
  if (!tensors.read_all(*how, sequence)) return unread(*how);
  TesseraContext current{sizeof(TesseraContext), nullptr, nullptr, 0, 0};
  if (ctx == nullptr) {
    if (!find_stream(*how, tensors.pointers[0], current.stream)) return unread(*how);
    ctx = &current;
  }
  void* state = how->unlock();
  const int status =
      call<kOp>(tensors.pointers, std::make_index_sequence<kCount>(), scalars..., ctx);
  how->lock(state);
  return status;
}

// A struct of arguments with the tensors read for it.
TesseraStatus attention_prefill(const DLTensor* q, const DLTensor* k, const DLTensor* v,
                                const DLTensor* out, const DLTensor* lse, const DLTensor* intervals,
                                const DLTensor* sinks, const DLTensor* alibi_slopes,
                                const DLTensor* q_starts, const DLTensor* kv_starts,
                                const DLTensor* kv_lens, const DLTensor* k_page_table,
                                const DLTensor* v_page_table, const DLTensor* q_scale,
                                const DLTensor* k_scale, const DLTensor* v_scale,
                                const TesseraAttentionArgs* given, const TesseraContext* ctx) {
  if (given == nullptr || given->struct_size < sizeof(TesseraAttentionArgs)) {
    return tessera_attention_prefill(given, ctx);  // which refuses it
  }
  TesseraAttentionArgs args = *given;
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = out;
  args.lse = lse;
  args.intervals = intervals;
  args.sinks = sinks;
  args.alibi_slopes = alibi_slopes;
  args.q_starts = q_starts;
  args.kv_starts = kv_starts;
  args.kv_lens = kv_lens;
  args.k_page_table = k_page_table;
  args.v_page_table = v_page_table;
  args.q_scale = q_scale;
  args.k_scale = k_scale;
  args.v_scale = v_scale;
  return tessera_attention_prefill(&args, ctx);
}

TesseraStatus attention_decode(const DLTensor* q, const DLTensor* k_pages, const DLTensor* v_pages,
                               const DLTensor* out, const DLTensor* seq_lens,
                               const DLTensor* page_table, const DLTensor* k_scales,
                               const DLTensor* v_scales, const DLTensor* k_tail,
                               const DLTensor* tails, const DLTensor* lse, const DLTensor* sinks,
                               const DLTensor* alibi_slopes, const DLTensor* tree,
                               const DLTensor* blocks, const DLTensor* num_blocks,
                               const DLTensor* keys, const DLTensor* num_keys,
                               const TesseraDecodeAttentionArgs* given, const TesseraContext* ctx) {
  if (given == nullptr || given->struct_size < sizeof(TesseraDecodeAttentionArgs)) {
    return tessera_attention_decode(given, ctx);  // which refuses it
  }
  TesseraDecodeAttentionArgs args = *given;
  args.q = q;
  args.k_pages = k_pages;
  args.v_pages = v_pages;
  args.out = out;
  args.seq_lens = seq_lens;
  args.page_table = page_table;
  args.k_scales = k_scales;
  args.v_scales = v_scales;
  args.k_tail = k_tail;
  args.tails = tails;
  args.lse = lse;
  args.sinks = sinks;
  args.alibi_slopes = alibi_slopes;
  args.tree = tree;
  args.blocks = blocks;
  args.num_blocks = num_blocks;
  args.keys = keys;
  args.num_keys = num_keys;
  return tessera_attention_decode(&args, ctx);
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
    entry<attention_prefill, 16, const TesseraAttentionArgs*>("attention_prefill"),
    entry<attention_decode, 18, const TesseraDecodeAttentionArgs*>("attention_decode"),
};

}  // namespace

TesseraFunction tessera_on_objects(const char* op) {
  for (const Entry& entry : kEntries) {
    if (entry.op == op) return entry.function;
  }
  return nullptr;
}
