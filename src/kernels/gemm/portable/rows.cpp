// The portable library's tables: products with a dense and with a 2:4 sparse weight.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"

#include "kernels/gemm/portable/launch.h"
#include "kernels/gemm/sparse/launch.h"

namespace tessera::kernels {
namespace {

using Launch = void (*)(const GemmArgs&, const Context&);
using Accepts = bool (*)(const GemmArgs&);

// Every kernel stores all types of out, so rows of one `in` share their launchers. f32 products are
// not stored as codes. `suffix` tells rows of the same types apart.
constexpr Row<GemmArgs> row(RowKey key, Launch launch, Accepts accepts,
                            std::string_view suffix = "") {
  return {"gemm", Library::portable, key, launch, label_of(types_of(key), suffix), accepts};
}
template <class T>
constexpr Row<GemmArgs> aligned(DType out) {
  return row({dtype_of<T>, out}, &launch_gemm_mma<T>, &accepts_aligned);
}
template <class T>
constexpr Row<GemmArgs> unaligned(DType out) {
  return row({dtype_of<T>, out}, &launch_gemm_mma_unaligned<T>, &accepts_any, "_unaligned");
}
template <class T, class Code>
constexpr Row<GemmArgs> codes(DType weight, DType out) {
  return row({dtype_of<T>, out, weight}, &launch_weight_codes<T, Code>, &accepts_weight_codes);
}
template <class T>
constexpr Row<GemmArgs> table(DType out) {
  return row(RowKey(dtype_of<T>, out, DType::i4).with_table(), &launch_weight_codes<T, TableIndex>,
             &accepts_weight_codes);
}
// Codes on both sides; T is the type of bias, residual and 16-bit results.
template <class A, class B, class T>
constexpr Row<GemmArgs> tokens(DType out) {
  return row({dtype_of<A>, out, dtype_of<B>}, &launch_token_codes<A, B, T>, &accepts_token_codes);
}
template <class T>
constexpr Row<GemmArgs> dp4a(DType out) {
  return row({DType::i8, out}, &launch_gemm_dp4a<T>, &accepts_dp4a, "_dp4a");
}
constexpr RowKey kF32{DType::f32, DType::f32};

constexpr Row<GemmArgs> kRows[] = {
    aligned<Bf16>(DType::bf16),
    aligned<Bf16>(DType::f32),
    aligned<Bf16>(DType::e4m3),
    aligned<Bf16>(DType::i8),
    aligned<F16>(DType::f16),
    aligned<F16>(DType::f32),
    aligned<F16>(DType::e4m3),
    aligned<F16>(DType::i8),
    row(kF32, &launch_gemm_mma<float>, &accepts_tf32, "_tf32"),
    row(kF32, &launch_gemm_f32<true>, &accepts_aligned),

    unaligned<Bf16>(DType::bf16),
    unaligned<Bf16>(DType::f32),
    unaligned<Bf16>(DType::e4m3),
    unaligned<Bf16>(DType::i8),
    unaligned<F16>(DType::f16),
    unaligned<F16>(DType::f32),
    unaligned<F16>(DType::e4m3),
    unaligned<F16>(DType::i8),
    row(kF32, &launch_gemm_f32<false>, &accepts_any, "_unaligned"),

    codes<Bf16, I4x2>(DType::i4, DType::bf16),
    codes<Bf16, I4x2>(DType::i4, DType::f32),
    codes<Bf16, uint8_t>(DType::i8, DType::bf16),
    codes<Bf16, uint8_t>(DType::i8, DType::f32),
    codes<Bf16, uint8_t>(DType::u8, DType::bf16),
    codes<Bf16, uint8_t>(DType::u8, DType::f32),
    codes<Bf16, E4m3>(DType::e4m3, DType::bf16),
    codes<Bf16, E4m3>(DType::e4m3, DType::f32),
    codes<F16, I4x2>(DType::i4, DType::f16),
    codes<F16, I4x2>(DType::i4, DType::f32),
    codes<F16, uint8_t>(DType::i8, DType::f16),
    codes<F16, uint8_t>(DType::i8, DType::f32),
    codes<F16, uint8_t>(DType::u8, DType::f16),
    codes<F16, uint8_t>(DType::u8, DType::f32),
    codes<F16, E4m3>(DType::e4m3, DType::f16),
    codes<F16, E4m3>(DType::e4m3, DType::f32),
    table<Bf16>(DType::bf16),
    table<Bf16>(DType::f32),
    table<F16>(DType::f16),
    table<F16>(DType::f32),

    // For few rows of a dp4a comes first. It gives the same bits as the rows after it.
    dp4a<Bf16>(DType::bf16),
    dp4a<F16>(DType::f16),
    dp4a<Bf16>(DType::f32),
    dp4a<Bf16>(DType::i8),
    tokens<int8_t, int8_t, Bf16>(DType::bf16),
    tokens<int8_t, int8_t, F16>(DType::f16),
    tokens<int8_t, int8_t, Bf16>(DType::f32),
    tokens<int8_t, int8_t, Bf16>(DType::i8),
    tokens<uint8_t, int8_t, Bf16>(DType::bf16),
    tokens<uint8_t, int8_t, Bf16>(DType::f32),
    tokens<int8_t, I4x2, Bf16>(DType::bf16),
    tokens<int8_t, I4x2, F16>(DType::f16),
    tokens<int8_t, I4x2, Bf16>(DType::f32),
    tokens<int8_t, I4x2, Bf16>(DType::i8),
    tokens<E4m3, I4x2, Bf16>(DType::bf16),
    tokens<E4m3, I4x2, F16>(DType::f16),
    tokens<E4m3, I4x2, Bf16>(DType::f32),
    tokens<E4m3, I4x2, Bf16>(DType::e4m3),
    tokens<I4x2, I4x2, Bf16>(DType::bf16),
    tokens<I4x2, I4x2, F16>(DType::f16),
    tokens<I4x2, I4x2, Bf16>(DType::f32),
};

template <class T>
constexpr Row<Gemm24Args> sparse_row() {
  constexpr DType kType = dtype_of<T>;
  return {"gemm_2_4", Library::portable, {kType, kType}, &launch_gemm_2_4<T>,
          {},         &accepts_gemm_2_4};
}
constexpr Row<Gemm24Args> kSparseRows[] = {sparse_row<Bf16>(), sparse_row<F16>()};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows() { return kRows; }
std::span<const Row<Gemm24Args>> gemm_2_4_rows() { return kSparseRows; }

}  // namespace tessera::kernels
