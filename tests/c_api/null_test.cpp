// NULL for every pointer of every function of the C ABI: refused or taken as absent, never read.
// SPDX-License-Identifier: MIT
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/c_api/dl_tensor.h"

namespace tessera::testing {
namespace {

// How many tensors a struct of arguments has: they lie between its size and its first scalar.
template <class Args>
constexpr size_t kNumTensors = 0;
constexpr size_t count_tensors(size_t first_scalar) {
  return (first_scalar - sizeof(uint64_t)) / sizeof(const DLTensor*);
}
template <>
constexpr size_t kNumTensors<TesseraAttentionArgs> = count_tensors(offsetof(TesseraAttentionArgs,
                                                                            left));
template <>
constexpr size_t kNumTensors<TesseraDecodeAttentionArgs> =
    count_tensors(offsetof(TesseraDecodeAttentionArgs, window));
template <>
constexpr size_t kNumTensors<TesseraMergeAttentionArgs> =
    count_tensors(sizeof(TesseraMergeAttentionArgs));
template <>
constexpr size_t kNumTensors<TesseraCascadeAttentionArgs> =
    count_tensors(offsetof(TesseraCascadeAttentionArgs, longest));
template <>
constexpr size_t kNumTensors<TesseraKvAppendArgs> = count_tensors(offsetof(TesseraKvAppendArgs,
                                                                           rope_style));
template <>
constexpr size_t kNumTensors<TesseraKvGatherArgs> = count_tensors(offsetof(TesseraKvGatherArgs,
                                                                           k_format));
template <>
constexpr size_t kNumTensors<TesseraGemmArgs> = count_tensors(offsetof(TesseraGemmArgs,
                                                                       b_rows_per_scale));
template <>
constexpr size_t kNumTensors<TesseraPackWeightArgs> = count_tensors(offsetof(TesseraPackWeightArgs,
                                                                             group));
template <>
constexpr size_t kNumTensors<TesseraSampleArgs> = count_tensors(sizeof(TesseraSampleArgs));

// A valid argument of each type that the ABI takes.
template <class T>
struct Sample {
  T value{};
  T get() { return value; }
};
template <>
struct Sample<const DLTensor*> {
  Array<float> tensor{{2, 2}};
  const DLTensor* get() { return tensor; }
};
template <>
struct Sample<const char*> {
  const char* get() { return "copy"; }
};
template <>
struct Sample<void*> {  // a stream: only the default one always exists
  void* get() { return nullptr; }
};
template <>
struct Sample<int32_t*> {
  int32_t value = 0;
  int32_t* get() { return &value; }
};
template <class Struct>
struct Sample<Struct*> {
  std::remove_const_t<Struct> value{};
  Array<float> tensor{{2, 2}};

  Struct* get(size_t missing_tensor = kNumTensors<std::remove_const_t<Struct>>) {
    value.struct_size = sizeof value;
    for (size_t i = 0; i < kNumTensors<std::remove_const_t<Struct>>; ++i) {
      const DLTensor* field = i == missing_tensor ? nullptr : &tensor.dl;
      std::memcpy(reinterpret_cast<std::byte*>(&value) + sizeof(uint64_t) + i * sizeof field,
                  &field, sizeof field);
    }
    return &value;
  }
};

template <class Result>
void check_result(Result result) {
  if constexpr (std::is_same_v<Result, TesseraStatus>) {
    if (result != TESSERA_OK) {
      EXPECT_STRNE(tessera_last_error(), "");
    }
  }
}

template <auto kFunction, class Result, class... Args>
struct Calls {
  using Tuple = std::tuple<Sample<Args>...>;
  static constexpr size_t kCount = sizeof...(Args);
  static constexpr size_t kAll = kCount + 1;

  // With NULL as pointer number `missing`, or as all of them.
  template <size_t... kIndex>
  static void call(size_t missing, std::index_sequence<kIndex...>) {
    Tuple samples;
    [[maybe_unused]] const auto argument = [&]<size_t i>(std::integral_constant<size_t, i>) {
      using T = std::tuple_element_t<i, std::tuple<Args...>>;
      if constexpr (std::is_pointer_v<T>) {
        if (missing == i || missing == kAll) return T{nullptr};
      }
      return std::get<i>(samples).get();
    };
    SCOPED_TRACE("NULL as argument " + std::to_string(missing));
    check_result<Result>(kFunction(argument(std::integral_constant<size_t, kIndex>{})...));
  }

  static void run() {
    for (size_t missing = 0; missing <= kAll; ++missing) {
      call(missing, std::make_index_sequence<kCount>());
    }
    if constexpr (kCount == 2) call_with_holes();
  }

  // A struct of arguments and a context: each tensor of the struct in turn.
  static void call_with_holes() {
    using First = std::tuple_element_t<0, std::tuple<Args...>>;
    if constexpr (std::is_pointer_v<First>) {
      using Struct = std::remove_const_t<std::remove_pointer_t<First>>;
      for (size_t i = 0; i < kNumTensors<Struct>; ++i) {
        SCOPED_TRACE("NULL as tensor " + std::to_string(i));
        Sample<First> args;
        if constexpr (kNumTensors < Struct >> 0) check_result<Result>(kFunction(args.get(i), {}));
      }
    }
  }
};

template <auto kFunction, class Result, class... Args>
auto calls_of(Result (*)(Args...)) -> Calls<kFunction, Result, Args...>;

struct Export {
  const char* name;
  void* address;
  void (*run)();
};

template <auto kFunction>
Export entry(const char* name) {
  return {name, reinterpret_cast<void*>(kFunction), &decltype(calls_of<kFunction>(kFunction))::run};
}

// All of them: check_exports.sh compares the names with those that the library shows.
const Export kExports[] = {
    entry<tessera_last_error>("tessera_last_error"),
    entry<tessera_last_error_where>("tessera_last_error_where"),
    entry<tessera_abi_version>("tessera_abi_version"),
    entry<tessera_commit>("tessera_commit"),
    entry<tessera_version>("tessera_version"),
    entry<tessera_cuda_version>("tessera_cuda_version"),
    entry<tessera_rms_norm>("tessera_rms_norm"),
    entry<tessera_layer_norm>("tessera_layer_norm"),
    entry<tessera_rope>("tessera_rope"),
    entry<tessera_make_rope_table>("tessera_make_rope_table"),
    entry<tessera_activation>("tessera_activation"),
    entry<tessera_softmax>("tessera_softmax"),
    entry<tessera_embedding>("tessera_embedding"),
    entry<tessera_copy>("tessera_copy"),
    entry<tessera_quantize>("tessera_quantize"),
    entry<tessera_dequantize>("tessera_dequantize"),
    entry<tessera_reduce>("tessera_reduce"),
    entry<tessera_argmax>("tessera_argmax"),
    entry<tessera_gemm>("tessera_gemm"),
    entry<tessera_embedding_computed>("tessera_embedding_computed"),
    entry<tessera_gemm_weight>("tessera_gemm_weight"),
    entry<tessera_pack_weight>("tessera_pack_weight"),
    entry<tessera_gemm_codes>("tessera_gemm_codes"),
    entry<tessera_gemm_table>("tessera_gemm_table"),
    entry<tessera_sum_weight_rows>("tessera_sum_weight_rows"),
    entry<tessera_preferred_packing>("tessera_preferred_packing"),
    entry<tessera_pack_gate_up>("tessera_pack_gate_up"),
    entry<tessera_prune_2_4>("tessera_prune_2_4"),
    entry<tessera_expand_2_4>("tessera_expand_2_4"),
    entry<tessera_gemm_2_4>("tessera_gemm_2_4"),
    entry<tessera_scale>("tessera_scale"),
    entry<tessera_attention_prefill>("tessera_attention_prefill"),
    entry<tessera_attention_decode>("tessera_attention_decode"),
    entry<tessera_attention_merge>("tessera_attention_merge"),
    entry<tessera_attention_cascade>("tessera_attention_cascade"),
    entry<tessera_kv_append>("tessera_kv_append"),
    entry<tessera_kv_gather>("tessera_kv_gather"),
    entry<tessera_kv_copy_pages>("tessera_kv_copy_pages"),
    entry<tessera_sample>("tessera_sample"),
    entry<tessera_token_logprobs>("tessera_token_logprobs"),
    entry<tessera_on_objects>("tessera_on_objects"),
    entry<tessera_num_cuda_devices>("tessera_num_cuda_devices"),
    entry<tessera_device_info>("tessera_device_info"),
    entry<tessera_synchronize>("tessera_synchronize"),
    entry<tessera_num_rows>("tessera_num_rows"),
    entry<tessera_row_info>("tessera_row_info"),
};

TEST(CApiWithNull, SurvivesEveryCall) {
  for (const Export& one : kExports) {
    SCOPED_TRACE(one.name);
    EXPECT_EQ(dlsym(RTLD_DEFAULT, one.name), one.address) << "the name is another function's";
    one.run();
  }
}

}  // namespace
}  // namespace tessera::testing
