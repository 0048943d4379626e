// Problems for strided copies. Sizes d0, d1, … are those of a row-major block of storage; "order"
// lists its axes as decimal digits counted from 1 (21: a transposed matrix), "pad" widens its
// innermost axis, "flip" walks its first axis backwards, "broadcast" repeats it; "reverse" makes
// that block the output instead of the input. Where the types differ, values are converted.
// SPDX-License-Identifier: MIT
#include "tessera/ops/copy.h"

#include <cmath>
#include <cstring>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"
#include "core/parallel.h"
#include "core/text.h"

namespace tessera::bench {
namespace {

// Values of every size that a narrow type can have, subnormals and overflows to infinity included,
// in all of the storage.
void fill_values(Operand& operand, Random random) {
  if (operand.host.size_bytes() == 0) return;  // only the sizes are wanted
  constexpr int kLowest = -30, kSpan = 50;
  const TensorView storage = operand.host.view();
  parallel_for(storage.num_elements(), 1, [&](int64_t i) {
    const auto exponent = static_cast<int>(random.bits(~i) % kSpan) + kLowest;
    store(storage, i, std::ldexp(random.normal(i), exponent));
  });
}

Problem make_copy(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"d0", "d1", "d2", "d3", "order", "pad", "flip", "broadcast", "reverse", "offset"});
  std::vector<int64_t> sizes;
  for (int d = 0; d < 4 && b.get(concat("d", d), -1) >= 0; ++d) {
    sizes.push_back(b.get(concat("d", d)));
  }
  const size_t rank = sizes.size();
  std::vector<int64_t> strides(rank);
  int64_t num_storage = 1;
  for (size_t d = rank; d-- > 0;) {
    strides[d] = num_storage;
    num_storage *= sizes[d] + (d + 1 == rank ? b.get("pad") : 0);
  }
  int64_t first = 0;
  if (b.get("flip") != 0 && sizes[0] > 0) {
    first = (sizes[0] - 1) * strides[0];
    strides[0] = -strides[0];
  }
  if (b.get("broadcast") != 0) strides[0] = 0;
  std::vector<size_t> axes(rank);  // digits of "order", or the order as stored
  int64_t order = b.get("order");
  for (size_t d = rank; d-- > 0; order /= 10) {
    axes[d] = order > 0 ? static_cast<size_t>(order % 10 - 1) : d;
  }
  std::vector<int64_t> view_shape(rank), view_strides(rank);
  double count = 1;
  for (size_t d = 0; d < rank; ++d) {
    view_shape[d] = sizes[axes[d]];
    view_strides[d] = strides[axes[d]];
    count *= static_cast<double>(view_shape[d]);
  }
  const bool is_reversed = b.get("reverse") != 0;
  for (const bool is_input : {true, false}) {
    const Role role = is_input ? Role::input : Role::output;
    const std::string_view name = is_input ? "x" : "out";
    Operand& operand = is_input != is_reversed
                           ? b.strided(name, role, is_input ? key.in : key.out, view_shape,
                                       view_strides, num_storage)
                           : b.dense(name, role, is_input ? key.in : key.out, view_shape);
    if (is_input != is_reversed) operand.offset += first;
    if (!is_input) continue;
    if (key.in != key.out) {
      fill_values(operand, b.random());
      continue;
    }
    // Any bits at all: a copy must not look at what they mean.
    const Random random = b.random();
    auto* bytes = operand.host.view().as<uint8_t>();
    const int64_t num_bytes = operand.host.size_bytes();
    parallel_for(num_bytes / 8, 1, [&](int64_t i) {
      const uint64_t bits = random.bits(i);
      std::memcpy(bytes + 8 * i, &bits, 8);
    });
    for (int64_t i = num_bytes / 8 * 8; i < num_bytes; ++i) {
      bytes[i] = static_cast<uint8_t>(random.bits(i));
    }
  }
  const auto call = [](std::span<const TensorView> v, const Context& ctx) {
    copy({.x = v[0], .out = v[1]}, ctx);
  };
  const double repeats = b.get("broadcast") != 0 ? static_cast<double>(sizes[0]) : 1.0;
  Problem problem = b.finish(call, 0, "");
  problem.bytes =
      count * bit_width(key.out) / 8.0 + count / std::max(repeats, 1.0) * bit_width(key.in) / 8.0;
  return problem;
}

// A conversion takes rows.
bool copy_fits(RowKey key, const Shape& shape) {
  if (key.in == key.out) return true;
  return value_of(shape, "order") == 0 && value_of(shape, "flip") == 0 &&
         value_of(shape, "broadcast") == 0;
}

std::vector<Shape> copy_test_shapes() {
  std::vector<Shape> shapes = {
      {{"d0", 0}, {"d1", 5}},
      {{"d0", 1}},
      {{"d0", 70000}},
      {{"d0", 1001}, {"offset", 1}},
      {{"d0", 33}, {"d1", 80}},
      {{"d0", 33}, {"d1", 80}, {"pad", 16}},
      {{"d0", 9}, {"d1", 1024}, {"pad", 1}, {"offset", 3}},
      {{"d0", 17}, {"d1", 100}, {"flip", 1}},
      {{"d0", 17}, {"d1", 100}, {"broadcast", 1}},
      {{"d0", 0}, {"d1", 5}, {"order", 21}},
      {{"d0", 1}, {"d1", 7}, {"order", 21}},
      {{"d0", 7}, {"d1", 1}, {"order", 21}},
      {{"d0", 128}, {"d1", 256}, {"order", 21}},
      {{"d0", 100}, {"d1", 33}, {"order", 21}},
      {{"d0", 257}, {"d1", 65}, {"order", 21}, {"pad", 3}, {"offset", 1}},
      {{"d0", 70000}, {"d1", 3}, {"order", 21}},
      {{"d0", 3}, {"d1", 70}, {"d2", 50}, {"order", 132}},
      {{"d0", 3}, {"d1", 70}, {"d2", 50}, {"order", 213}},
      {{"d0", 3}, {"d1", 70}, {"d2", 50}, {"order", 321}},
      {{"d0", 65}, {"d1", 3}, {"d2", 50}, {"order", 312}, {"flip", 1}},
      {{"d0", 2}, {"d1", 33}, {"d2", 4}, {"d3", 80}, {"order", 1324}},
  };
  // Every order of four axes, none of them a multiple of a tile.
  for (int64_t a = 1; a <= 4; ++a) {
    for (int64_t b = 1; b <= 4; ++b) {
      for (int64_t c = 1; c <= 4; ++c) {
        if (a == b || a == c || b == c) continue;
        const int64_t order = 1000 * a + 100 * b + 10 * c + (10 - a - b - c);
        shapes.push_back({{"d0", 3}, {"d1", 5}, {"d2", 34}, {"d3", 17}, {"order", order}});
      }
    }
  }
  const size_t num_forward = shapes.size();
  for (size_t i = 0; i < num_forward; ++i) {
    if (value_of(shapes[i], "broadcast") != 0) continue;  // an output does not repeat itself
    shapes.push_back(with_value(shapes[i], "reverse", 1));
  }
  return shapes;
}

}  // namespace

ProblemMaker copy_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : {DType::u8, DType::f16, DType::i32, DType::i64}) {
    keys.push_back({dtype, dtype});
  }
  for (const DType in : kFloats) {
    for (const DType out : kFloats) {
      if (in != out) keys.push_back({in, out});
    }
  }
  return {
      "copy",
      &make_copy,
      &copy_fits,
      keys,
      copy_test_shapes(),
      {{"transpose",
        {{{"d0", 4096}, {"d1", 4096}, {"order", 21}},
         {{"d0", 16384}, {"d1", 4096}, {"order", 21}},
         {{"d0", 16}, {"d1", 512}, {"d2", 32}, {"d3", 128}, {"order", 1324}}}},
       {"copy", {{{"d0", 16384}, {"d1", 4096}}, {{"d0", 16384}, {"d1", 4096}, {"pad", 2048}}}}}};
}

}  // namespace tessera::bench
