// Scaled, capped and added values on the CPU.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kBlock = 4096;  // elements one task takes; their floats stay in the first cache

template <class T>
void apply(const ScaleArgs& args) {
  const int64_t count = args.x.num_elements();
  const int64_t num_blocks = (count + kBlock - 1) / kBlock;
  for_each_row(num_blocks, kBlock, kBlock, [&](int64_t block, float* values) {
    const int64_t begin = block * kBlock, size = std::min(kBlock, count - begin);
    load_row(args.x.as<T>() + begin, size, values);
    for (int64_t i = 0; i < size; ++i) values[i] *= args.scale;
    if (args.softcap > 0.0f) {
      for (int64_t i = 0; i < size; ++i) {
        values[i] = args.softcap * std::tanh(values[i] / args.softcap);
      }
    }
    if (args.residual) {
      const T* residual = args.residual->as<T>() + begin;
      for (int64_t i = 0; i < size; ++i) values[i] += to_float(residual[i]);
    }
    store_row(values, size, args.out.as<T>() + begin);
  });
}

}  // namespace

void scale(const ScaleArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { apply<decltype(type)>(args); });
}

}  // namespace tessera::cpu
