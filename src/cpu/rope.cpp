// Rotary position embedding on the CPU.
// SPDX-License-Identifier: MIT
#include "core/text.h"
#include "cpu/elementwise.h"
#include "cpu/float_row.h"
#include "cpu/parallel.h"
#include "tessera/core/error.h"

namespace tessera::cpu {
namespace {

int64_t position_at(const TensorView& positions, int64_t token) {
  return positions.dtype == DType::i32 ? positions.as<int32_t>()[token]
                                       : positions.as<int64_t>()[token];
}

// Before anything is written, so that a refused call changes nothing.
void check_positions(const RopeArgs& args, int64_t num_tokens) {
  const int64_t num_positions = args.table.size(0);
  for (int64_t token = 0; token < num_tokens; ++token) {
    const int64_t position = position_at(args.positions, token);
    if (position >= 0 && position < num_positions) continue;
    fail(concat("rope: positions[", token, "] is ", position, "; the table holds positions 0 to ",
                num_positions - 1, "; make a longer one with make_rope_table"));
  }
}

// Rotates the pairs (x[i * step], x[i * step + apart]) of one head.
template <class T>
void rotate(T* x, const float* cosines, const float* sines, int64_t num_pairs, int64_t step,
            int64_t apart) {
  for (int64_t i = 0; i < num_pairs; ++i) {
    T& first = x[i * step];
    T& second = x[i * step + apart];
    const float a = to_float(first);
    const float b = to_float(second);
    first = from_float<T>(a * cosines[i] - b * sines[i]);
    second = from_float<T>(b * cosines[i] + a * sines[i]);
  }
}

template <class T>
void rotate_token(const RopeArgs& args, const TensorView& x, int64_t token) {
  const int64_t rotary_dim = args.table.size(1);
  const int64_t num_pairs = rotary_dim / 2;
  const float* cosines = args.table.as<float>() + position_at(args.positions, token) * rotary_dim;
  const float* sines = cosines + num_pairs;
  for (int64_t head = 0; head < x.size(1); ++head) {
    T* start = x.as<T>() + token * x.stride(0) + head * x.stride(1);
    if (args.style == RopeStyle::half_split) {
      rotate(start, cosines, sines, num_pairs, 1, num_pairs);
    } else {
      rotate(start, cosines, sines, num_pairs, 2, 1);
    }
  }
}

}  // namespace

void rope(const RopeArgs& args) {
  const int64_t num_tokens = args.q.size(0);
  check_positions(args, num_tokens);
  const int64_t num_heads = args.q.size(1) + (args.k ? args.k->size(1) : 0);
  with_float_type(args.q.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(num_tokens, num_heads * args.table.size(1), [&](int64_t token) {
      rotate_token<T>(args, args.q, token);
      if (args.k) rotate_token<T>(args, *args.k, token);
    });
  });
}

}  // namespace tessera::cpu
