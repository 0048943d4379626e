// Activations on the CPU, plain and gated.
// SPDX-License-Identifier: MIT
#include "cpu/activation_row.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"

namespace tessera::cpu {
namespace {

template <class T>
void apply(const ActivationArgs& args) {
  const ActivateRow activate = activate_row(args.kind);
  const Rows x = as_rows(args.x, "x");
  const Rows out = as_rows(args.out, "out");
  const Rows up = args.up ? as_rows(*args.up, "up") : Rows{};
  // By way of scratch, so that the conversions vectorise where the functions do not.
  for_each_row(x.num_rows, x.num_cols, x.num_cols, [&](int64_t row, float* values) {
    load_row(args.x.as<T>() + row * x.row_stride, x.num_cols, values);
    activate(values, x.num_cols);
    if (args.up) {
      const T* by = args.up->as<T>() + row * up.row_stride;
      for (int64_t i = 0; i < x.num_cols; ++i) values[i] *= to_float(by[i]);
    }
    store_row(values, x.num_cols, args.out.as<T>() + row * out.row_stride);
  });
}

}  // namespace

void activation(const ActivationArgs& args) {
  with_float_type(args.x.dtype, [&](auto type) { apply<decltype(type)>(args); });
}

}  // namespace tessera::cpu
