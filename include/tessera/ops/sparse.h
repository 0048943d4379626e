// 2:4 structured sparsity: weights of which two in every four are kept, and the product with them.
// SPDX-License-Identifier: MIT
#pragma once

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

// A pruned weight [n, k] is two tensors. `values` [n, k / 2] holds the kept elements of each row in
// order. `meta` [ceil(n / 32), k / 32, 32], i32, says where they lie, in blocks of 32 rows by 32
// columns in the order in which the lanes of a warp read them. Four neighbouring columns have 4
// bits: the place of the first kept element in the low two, that of the second in the high two.
// Word 4 g + 2 h + q of a block, with g in 0-7 and h, q in 0-1, holds 16 bits for columns 16 q to
// 16 q + 15 of row 16 h + g, lowest columns lowest, and above them 16 for row 16 h + g + 8. Rows
// beyond n say 0 and 1.
inline constexpr int64_t kSparseBlock = 32;

// Of every four neighbours in a row, keeps the two of largest magnitude; of equal ones the first.
// NaN counts as largest. An offline step: tensors are on the CPU.
struct Prune24Args {
  TensorView w;           // [n, k]; f16 or bf16; k a multiple of 32; rows may be apart
  TensorView out_values;  // [n, k / 2], dtype of w, contiguous
  TensorView out_meta;    // [ceil(n / 32), k / 32, 32], i32, contiguous
};
void prune_2_4(const Prune24Args& args, const Context& ctx = {});

// The weight as a dense tensor. Tensors are on the CPU.
struct Expand24Args {
  TensorView values;  // as prune_2_4 writes them
  TensorView meta;
  TensorView out;  // [n, k], dtype of values; rows may be apart
};
void expand_2_4(const Expand24Args& args, const Context& ctx = {});

//   out = a[m, k] . w[n, k]^T               accumulated in float, rounded once
// over the kept elements of w. Row i of out depends on row i of a alone, bit for bit. m, n or k may
// be 0. If a is not finite, a dropped weight may or may not count as 0. Error: within 1 ulp of the
// exact result, plus k * 2^-23 * sum |a| |w|.
struct Gemm24Args {
  TensorView a;       // [m, k]; f16 or bf16; rows may be apart
  TensorView values;  // as prune_2_4 writes them, dtype of a
  TensorView meta;
  TensorView out;  // [m, n], dtype of a; rows may be apart
};
void gemm_2_4(const Gemm24Args& args, const Context& ctx = {});
bool supports(const Gemm24Args& args, const Context& ctx = {});

}  // namespace tessera
