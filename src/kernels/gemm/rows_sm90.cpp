// The matrix product's table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/gemm/rows.h"
#include "kernels/gemm/sm90/launch_sm90.h"

namespace tessera::kernels {
namespace {

// One launcher stores every type of out.
template <class T>
constexpr Row<GemmArgs> row(DType out) {
  return {"gemm",        Library::sm90, {dtype_of<T>, out}, &launch_gemm_sm90<T>, {},
          &accepts_sm90, true,          &yields_sm90};
}

constexpr Row<GemmArgs> kRows[] = {
    row<Bf16>(DType::bf16), row<Bf16>(DType::f32), row<Bf16>(DType::e4m3), row<Bf16>(DType::i8),
    row<F16>(DType::f16),   row<F16>(DType::f32),  row<F16>(DType::e4m3),  row<F16>(DType::i8),
};

}  // namespace

std::span<const Row<GemmArgs>> gemm_rows_sm90() { return kRows; }

}  // namespace tessera::kernels
