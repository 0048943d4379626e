// The triangular factor of an inverse, which GPTQ reads row by row.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::quant {

// For a symmetric positive definite H [k, k], the upper triangle U with U^T U = H^-1, transposed:
// f32 [k, k], zeros above the diagonal. False if H is not positive definite.
//
// In double: a calibration set of few tokens leaves eigenvalues of H that only the damping lifts
// from 0, a hundred thousand times below the largest, and in float their pivots would drown in
// rounding errors. `h` is overwritten.
bool factor_inverse(std::vector<double>& h, int64_t k, const TensorView& factor);

// The same in float on the device of `h`, by blocks that matrix products update, and with rows and
// columns in reverse order, which J does: `h` is J H J, f32 [k, k], and `factor` becomes J F J, an
// upper triangle, where F is the factor above. Diagonal blocks are factored on the CPU in double.
// `h` is overwritten.
bool factor_inverse_by_blocks(const TensorView& h, const TensorView& factor, const Context& ctx);

}  // namespace tessera::quant
