// Problems for attention_merge.
// SPDX-License-Identifier: MIT
//
// Sizes: parts, batch, q_len (absent: no such axis), heads, d. Options: lse, strided (1: parts
// innermost but for a head, heads before tokens; 2: 3 elements between heads).
#include <limits>

#include "bench/problems/builder.h"
#include "bench/problems/makers.h"
#include "tessera/ops/attention.h"

namespace tessera::bench {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct MergeSizes {
  int64_t parts, batch, q_len, heads, d;
  bool has_q_axis;

  int64_t rows() const { return batch * q_len * heads; }
  // The axes of one part, and those of its logarithms, with `front` before them.
  std::vector<int64_t> part_shape(std::vector<int64_t> front) const {
    front.push_back(batch);
    if (has_q_axis) front.push_back(q_len);
    front.insert(front.end(), {heads, d});
    return front;
  }
  std::vector<int64_t> lse_shape(std::vector<int64_t> front) const {
    front.insert(front.end(), {batch, heads});
    if (has_q_axis) front.push_back(q_len);
    return front;
  }
};

// Integers: one, two or four parts of a row (if it has that many) have equal weight and the others
// none; in every seventh row no part has seen a key. Values are multiples of 4.
float exact_lse(const MergeSizes& n, int64_t part, int64_t row, Random random) {
  if (row % 7 == 6) return kLowest;
  const int64_t alike = int64_t{1} << (n.parts >= 4 ? row % 3 : n.parts >= 2 ? row % 2 : 0);
  const int64_t first = random.integer(row, 0, n.parts - 1);
  if ((part - first + n.parts) % n.parts < alike) return static_cast<float>(row % 5);
  return part % 2 == 0 ? kLowest : -300.0f;
}

// A part that has seen no key may be NaN.
void fill_parts(Operand& parts, const Operand& lses, const MergeSizes& n, bool is_normal,
                Random random) {
  if (parts.host.size_bytes() == 0) return;
  for (int64_t i = 0; i < n.parts * n.rows(); ++i) {
    const int64_t head = i % n.heads, token = i / n.heads % n.q_len;
    const int64_t sequence = i / (n.heads * n.q_len) % n.batch, part = i / n.rows();
    const auto place = [&](const Operand& x, size_t tokens, size_t heads) {
      return x.offset + part * x.strides[0] + sequence * x.strides[1] +
             (n.has_q_axis ? token * x.strides[tokens] : 0) + head * x.strides[heads];
    };
    const int64_t at = place(lses, 3, 2);
    const float lse = is_normal ? (i % 11 == 5 ? kLowest : 2 * random.normal(i))
                                : exact_lse(n, part, i % n.rows(), random.stream(1));
    store(lses.host, at, lse);
    const int64_t begin = place(parts, 2, n.has_q_axis ? 3 : 2);
    for (int64_t c = 0; c < n.d; ++c) {
      const float value = is_normal ? random.stream(2).normal(begin + c)
                                    : static_cast<float>(4 * random.integer(begin + c, -7, 7));
      store(parts.host, begin + c,
            lse == kLowest ? std::numeric_limits<float>::quiet_NaN() : value);
    }
  }
}

Operand& add_parts(Builder& b, RowKey key, const MergeSizes& n, int64_t strided) {
  const std::vector<int64_t> shape = n.part_shape({n.parts});
  if (strided == 0) return b.dense("parts", Role::input, key.in, shape);
  const int64_t gap = strided == 2 ? 3 : 0, head = n.d + gap;
  std::vector<int64_t> strides{head, n.q_len * n.heads * n.parts * head};
  if (n.has_q_axis) strides.push_back(n.parts * head);
  strides.insert(strides.end(), {n.q_len * n.parts * head, 1});
  return b.strided("parts", Role::input, key.in, shape, strides, n.parts * n.rows() * head);
}

Problem make_merge(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed, {"parts", "batch", "q_len", "heads", "d", "lse", "strided"});
  const MergeSizes n{b.get("parts"), b.get("batch", 1), b.get("q_len", 1),
                     b.get("heads"), b.get("d"),        b.get("q_len") != 0};
  // Weights of parts: their exponents err by a few units, and their sum by one per part.
  const double error = (16 + static_cast<double>(n.parts)) * 0x1p-22;
  const Bound bound =
      b.is_normal() ? rounded_twice(key.out, 0, 5 * error) : Bound{.absolute = 0x1p-100};
  Operand& parts = add_parts(b, key, n, b.get("strided"));
  Operand& lses = b.dense("part_lses", Role::input, DType::f32, n.lse_shape({n.parts}));
  fill_parts(parts, lses, n, b.is_normal(), b.random());
  b.dense("out", Role::output, key.out, n.part_shape({}), bound).is_per_row = true;
  const bool has_lse = b.get("lse") != 0;
  if (has_lse) {
    b.dense("lse", Role::output, DType::f32, n.lse_shape({}),
            {.absolute = 0x1p-20, .relative = 0x1p-21})
        .is_per_row = true;
  }
  const auto args_of = [=](std::span<const TensorView> v) {
    return MergeAttentionArgs{
        .parts = v[0], .part_lses = v[1], .out = v[2], .lse = has_lse ? v[3] : TensorView{}};
  };
  Problem problem = b.finish([=](std::span<const TensorView> views,
                                 const Context& ctx) { attention_merge(args_of(views), ctx); },
                             2.0 * static_cast<double>(n.parts * n.rows() * n.d), "");
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(args_of(views), ctx);
  };
  return problem;
}

bool merge_fits(RowKey, const Shape&) { return true; }

}  // namespace

ProblemMaker attention_merge_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  const std::vector<Shape> tests = {
      {{"parts", 1}, {"batch", 1}, {"heads", 1}, {"d", 1}},
      {{"parts", 0}, {"batch", 2}, {"heads", 2}, {"d", 64}, {"lse", 1}},
      {{"parts", 3}, {"batch", 0}, {"heads", 2}, {"d", 64}},
      {{"parts", 2}, {"batch", 3}, {"heads", 4}, {"d", 128}, {"lse", 1}},
      {{"parts", 9}, {"batch", 64}, {"heads", 32}, {"d", 128}},
      {{"parts", 5}, {"batch", 3}, {"q_len", 4}, {"heads", 3}, {"d", 96}, {"lse", 1}},
      {{"parts", 33}, {"batch", 5}, {"q_len", 2}, {"heads", 2}, {"d", 256}, {"lse", 1}},
      {{"parts", 100}, {"batch", 2}, {"heads", 5}, {"d", 33}, {"lse", 1}},
      {{"parts", 4}, {"batch", 3}, {"q_len", 2}, {"heads", 4}, {"d", 64}, {"strided", 1}},
      {{"parts", 4}, {"batch", 3}, {"heads", 4}, {"d", 70}, {"strided", 2}, {"lse", 1}},
  };
  return {"attention_merge",
          &make_merge,
          &merge_fits,
          keys,
          tests,
          {{"decode/merge",
            {{{"parts", 2}, {"batch", 64}, {"heads", 32}, {"d", 128}},
             {{"parts", 9}, {"batch", 64}, {"heads", 32}, {"d", 128}},
             {{"parts", 9}, {"batch", 4096}, {"heads", 32}, {"d", 128}}}}},
          "attention"};
}

}  // namespace tessera::bench
