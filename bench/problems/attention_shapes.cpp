// Attention's shapes: small and awkward ones for tests, 16384 tokens and Llama 3 8B for benches.
// SPDX-License-Identifier: MIT
#include "bench/problems/attention_shapes.h"

#include <algorithm>
#include <initializer_list>

namespace tessera::bench {
namespace {

using ShapeOptions = std::initializer_list<std::pair<std::string, int64_t>>;

struct Lengths {
  int64_t batch, q_len, kv_len;
};
struct Heads {
  int64_t heads, kv_heads;
};
struct Dims {
  int64_t d, dv;
};

// Sizes that equal their default are left out, so that names stay short.
Shape shape_of(Lengths l, Heads h, Dims dims, ShapeOptions options = {}) {
  Shape shape{{"batch", l.batch}, {"q_len", l.q_len}};
  if (l.kv_len != l.q_len) shape.emplace_back("kv_len", l.kv_len);
  shape.emplace_back("heads", h.heads);
  if (h.kv_heads != h.heads) shape.emplace_back("kv_heads", h.kv_heads);
  shape.emplace_back("d", dims.d);
  if (dims.dv != dims.d) shape.emplace_back("dv", dims.dv);
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

void append(std::vector<Shape>& all, const std::vector<Shape>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// For every head size: one token, whole tiles and parts of them,
// fewer queries than keys and more, every layout, two kinds of mask.
std::vector<Shape> shapes_of_every_size(Dims dims) {
  return {shape_of({1, 1, 1}, {2, 2}, dims, {{"lse", 1}}),
          shape_of({1, 17, 40}, {2, 1}, dims, {{"causal", 1}}), shape_of({2, 64, 64}, {2, 2}, dims),
          shape_of({3, 63, 63}, {2, 1}, dims, {{"causal", 1}, {"lse", 1}}),
          shape_of({1, 65, 200}, {4, 2}, dims, {{"causal", 1}, {"lse", 1}}),
          shape_of({1, 200, 65}, {2, 1}, dims, {{"causal", 1}, {"lse", 1}}),
          shape_of({1, 129, 127}, {2, 2}, dims, {{"left", 33}, {"right", 5}}),
          shape_of({1, 130, 130}, {2, 1}, dims, {{"causal", 1}, {"softcap", 1}, {"sinks", 1}}),
          shape_of({4, 129, 129}, {2, 2}, dims, {{"causal", 1}, {"ragged", 1}, {"lens", 1}}),
          shape_of({3, 33, 70}, {2, 1}, dims,
                   {{"causal", 1}, {"page", 16}, {"pages", 18}, {"lens", 1}}),
          shape_of({2, 65, 65}, {2, 1}, dims, {{"causal", 1}, {"strided", 1}}),
          shape_of({2, 100, 100}, {2, 1}, dims, {{"intervals", 4}, {"lse", 1}}),
          // Heads that may share tiles.
          shape_of({3, 33, 300}, {8, 2}, dims, {{"lens", 1}, {"lse", 1}}),
          shape_of({2, 90, 200}, {16, 1}, dims, {{"page", 16}, {"strided", 2}, {"lse", 1}})};
}

std::vector<Shape> mask_shapes(Dims dims) {
  return {shape_of({1, 513, 513}, {2, 2}, dims, {{"causal", 1}}),
          // More tiles than a GPU has blocks, so that each block takes several.
          shape_of({70, 130, 65}, {4, 1}, dims, {{"causal", 1}, {"lse", 1}}),
          shape_of({70, 140, 140}, {4, 1}, dims, {{"causal", 1}, {"ragged", 1}, {"lens", 1}}),
          // Few rows of a tile, whose other warpgroups have nothing to do for many blocks of keys.
          shape_of({140, 17, 500}, {3, 1}, dims),
          shape_of({1, 300, 300}, {2, 1}, dims, {{"causal", 1}, {"left", 64}}),
          shape_of({1, 200, 300}, {2, 1}, dims, {{"causal", 1}, {"left", 0}}),
          shape_of({1, 100, 300}, {2, 1}, dims, {{"left", 100}}),
          shape_of({1, 300, 200}, {2, 1}, dims, {{"right", 17}, {"lse", 1}}),
          shape_of({2, 129, 200}, {2, 1}, dims, {{"intervals", 1}, {"lse", 1}}),
          shape_of({2, 200, 200}, {2, 1}, dims, {{"intervals", 2}}),
          shape_of({2, 200, 200}, {2, 1}, dims, {{"intervals", 2}, {"causal", 1}, {"sinks", 1}}),
          shape_of({2, 200, 200}, {2, 1}, dims, {{"intervals", 3}}),
          shape_of({1, 200, 300}, {2, 1}, dims, {{"intervals", 4}, {"left", 90}, {"softcap", 1}}),
          shape_of({4, 130, 100}, {2, 1}, dims, {{"intervals", 4}, {"ragged", 1}, {"lens", 1}}),
          shape_of({3, 65, 100}, {2, 1}, dims,
                   {{"intervals", 2}, {"page", 16}, {"pages", 21}, {"lens", 1}})};
}

std::vector<Shape> layout_shapes(Dims dims) {
  return {shape_of({0, 5, 5}, {2, 2}, dims),
          shape_of({2, 0, 5}, {2, 2}, dims),
          shape_of({2, 5, 0}, {2, 2}, dims, {{"lse", 1}, {"sinks", 1}}),
          shape_of({4, 50, 70}, {8, 1}, dims, {{"lens", 1}, {"lse", 1}}),
          shape_of({2, 129, 129}, {6, 2}, dims, {{"causal", 1}, {"strided", 2}}),
          shape_of({2, 65, 65}, {3, 1}, dims, {{"causal", 1}, {"strided", 3}}),
          shape_of({2, 100, 100}, {4, 2}, dims, {{"causal", 1}, {"in_place", 1}}),
          shape_of({5, 64, 64}, {4, 4}, dims, {{"ragged", 1}, {"lens", 1}, {"lse", 1}}),
          shape_of({3, 64, 64}, {2, 2}, dims, {{"causal", 1}, {"ragged", 1}, {"strided", 1}}),
          shape_of({5, 40, 90}, {2, 1}, dims,
                   {{"causal", 1}, {"ragged", 1}, {"lens", 1}, {"page", 16}, {"lse", 1}}),
          shape_of({2, 65, 65}, {2, 1}, dims, {{"causal", 1}, {"page", 1}}),
          shape_of({3, 40, 40}, {2, 1}, dims, {{"page", 8}, {"lens", 1}, {"strided", 1}}),
          shape_of({2, 130, 200}, {2, 1}, dims,
                   {{"causal", 1}, {"page", 64}, {"pages", 9}, {"v_table", 1}}),
          shape_of({2, 65, 200}, {2, 1}, dims,
                   {{"causal", 1}, {"left", 70}, {"page", 16}, {"pages", 30}}),
          shape_of({1, 33, 150}, {2, 1}, dims, {{"causal", 1}, {"page", 128}, {"v_table", 1}})};
}

std::vector<Shape> feature_shapes(Dims dims) {
  return {shape_of({2, 65, 100}, {4, 2}, dims, {{"softcap", 1}, {"lse", 1}}),
          shape_of({2, 100, 65}, {4, 2}, dims, {{"causal", 1}, {"sinks", 1}, {"lse", 1}}),
          shape_of({2, 65, 100}, {4, 2}, dims, {{"alibi", 1}, {"lse", 1}}),
          shape_of({2, 100, 100}, {4, 1}, dims, {{"causal", 1}, {"alibi", 1}, {"sinks", 1}}),
          shape_of({2, 65, 129}, {4, 2}, dims, {{"causal", 1}, {"dropout", 1}, {"lse", 1}}),
          shape_of({4, 65, 65}, {2, 1}, dims, {{"ragged", 1}, {"lens", 1}, {"dropout", 1}}),
          shape_of({2, 65, 65}, {4, 2}, dims,
                   {{"softcap", 1}, {"alibi", 1}, {"dropout", 1}, {"causal", 1}, {"left", 30}}),
          shape_of({2, 65, 100}, {4, 2}, dims, {{"causal", 1}, {"scales", 1}, {"lse", 1}}),
          shape_of({1, 130, 130}, {2, 2}, dims, {{"scales", 1}, {"softcap", 1}}),
          shape_of({2, 200, 300}, {4, 2}, dims, {{"causal", 1}, {"scales", 1}, {"float_sums", 1}}),
          shape_of({70, 130, 65}, {4, 1}, dims, {{"causal", 1}, {"float_sums", 1}, {"lse", 1}}),
          shape_of({3, 70, 70}, {4, 2}, dims,
                   {{"causal", 1}, {"scales", 1}, {"page", 16}, {"pages", 17}, {"lens", 1}}),
          shape_of({4, 70, 90}, {2, 1}, dims,
                   {{"causal", 1}, {"scales", 1}, {"ragged", 1}, {"lens", 1}})};
}

// Heads that fill part of a tile's columns: every layout, several tiles, and every way of storing
// results.
std::vector<Shape> padded_shapes(Dims dims) {
  return {shape_of({1, 17, 40}, {2, 1}, dims, {{"causal", 1}}),
          shape_of({2, 64, 64}, {2, 2}, dims, {{"lse", 1}}),
          shape_of({1, 300, 200}, {4, 2}, dims, {{"causal", 1}, {"lse", 1}}),
          shape_of({4, 129, 129}, {2, 2}, dims, {{"causal", 1}, {"ragged", 1}, {"lens", 1}}),
          shape_of({3, 33, 70}, {2, 1}, dims,
                   {{"causal", 1}, {"page", 16}, {"pages", 18}, {"lens", 1}}),
          shape_of({2, 130, 200}, {2, 1}, dims,
                   {{"causal", 1}, {"page", 64}, {"pages", 9}, {"v_table", 1}}),
          shape_of({2, 65, 65}, {2, 1}, dims, {{"left", 33}, {"right", 5}, {"strided", 1}}),
          shape_of({2, 100, 100}, {2, 1}, dims, {{"intervals", 4}, {"lse", 1}}),
          shape_of({3, 33, 300}, {8, 2}, dims, {{"lens", 1}, {"strided", 2}}),
          shape_of({2, 65, 65}, {2, 1}, dims, {{"causal", 1}, {"page", 4}, {"sinks", 1}}),
          shape_of({1, 130, 130}, {2, 1}, dims, {{"causal", 1}, {"softcap", 1}, {"alibi", 1}}),
          shape_of({2, 65, 129}, {4, 2}, dims, {{"causal", 1}, {"dropout", 1}, {"lse", 1}}),
          shape_of({2, 40, 40}, {3, 1}, dims, {{"causal", 1}, {"strided", 3}})};
}

// The most keys that integers of so few elements can distinguish.
int64_t keys_for(int64_t d) { return d < 16 ? 8 : d < 24 ? 40 : 100; }

constexpr int64_t kTokens = 16384;

// 16384 tokens in sequences of 512 to 16384, 2048 elements of all heads: as FlashAttention is
// measured.
std::vector<Shape> square_shapes(int64_t d, bool has_scales = false) {
  std::vector<Shape> shapes;
  for (const int64_t causal : {0, 1}) {
    for (int64_t length = 512; length <= kTokens; length *= 2) {
      const int64_t heads = 2048 / d;
      Shape shape = shape_of({kTokens / length, length, length}, {heads, heads}, {d, d});
      if (causal != 0) shape.emplace_back("causal", 1);
      if (has_scales) shape.emplace_back("scales", 1);
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

std::vector<Shape> llama8b_shapes() {
  std::vector<Shape> shapes;
  for (const auto& [batch, length] :
       {std::pair<int64_t, int64_t>{1, 2048}, {1, 8192}, {1, 32768}, {4, 4096}, {16, 512}}) {
    shapes.push_back(shape_of({batch, length, length}, {32, 8}, {128, 128}, {{"causal", 1}}));
  }
  return shapes;
}

// Compared to the same keys without pages.
std::vector<Shape> paged_shapes() {
  std::vector<Shape> shapes;
  for (const Lengths l : {Lengths{4, 4096, 4096}, Lengths{1, kTokens, kTokens}}) {
    const Shape plain = shape_of(l, {32, 8}, {128, 128}, {{"causal", 1}});
    append(shapes, {plain, with_value(plain, "page", 16), with_value(plain, "page", 64)});
  }
  return shapes;
}

std::vector<Shape> window_shapes() {
  const Shape causal = shape_of({1, kTokens, kTokens}, {16, 16}, {128, 128}, {{"causal", 1}});
  return {causal, with_value(causal, "left", 1023)};
}

std::vector<Shape> interval_shapes() {
  std::vector<Shape> shapes;
  for (const Lengths l : {Lengths{4, 4096, 4096}, Lengths{1, kTokens, kTokens}}) {
    shapes.push_back(shape_of(l, {16, 16}, {128, 128}, {{"causal", 1}}));
    shapes.push_back(shape_of(l, {16, 16}, {128, 128}, {{"intervals", 1}}));
  }
  return shapes;
}

// With sums in float, and other sizes.
std::vector<Shape> e4m3_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t d : {128, 64, 256}) {
    const Shape full =
        shape_of({1, kTokens, kTokens}, {2048 / d, 2048 / d}, {d, d}, {{"scales", 1}});
    append(shapes, {full, with_value(full, "causal", 1)});
    if (d > 128) continue;
    const Shape in_float = with_value(full, "float_sums", 1);
    append(shapes, {in_float, with_value(in_float, "causal", 1)});
  }
  return shapes;
}

std::vector<Shape> size_shapes() {
  std::vector<Shape> shapes;
  for (const Dims dims : {Dims{96, 96}, Dims{192, 128}, Dims{32, 64}}) {
    const Shape full = shape_of({4, 4096, 4096}, {16, 16}, dims);
    append(shapes, {full, with_value(full, "causal", 1)});
  }
  return shapes;
}

// Heads that other models have.
std::vector<Shape> head_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t d : {80, 96, 112, 160, 192}) {
    const Shape full = shape_of({4, 4096, 4096}, {16, 16}, {d, d});
    append(shapes, {full, with_value(full, "causal", 1)});
  }
  return shapes;
}

std::vector<Shape> type_shapes() {
  return {shape_of({2, 1024, 1024}, {16, 16}, {128, 128}, {{"causal", 1}}),
          shape_of({2, 1024, 1024}, {16, 16}, {64, 64})};
}

}  // namespace

std::vector<Shape> attention_test_shapes() {
  std::vector<Shape> shapes;
  for (const Dims dims :
       {Dims{64, 64}, Dims{128, 128}, Dims{96, 96}, Dims{256, 256}, Dims{192, 128}, Dims{32, 64}}) {
    append(shapes, shapes_of_every_size(dims));
  }
  for (const Dims dims : {Dims{64, 64}, Dims{128, 128}}) {
    append(shapes, mask_shapes(dims));
    append(shapes, layout_shapes(dims));
    append(shapes, feature_shapes(dims));
  }
  append(shapes, {shape_of({140, 17, 500}, {3, 1}, {96, 96})});
  for (const Dims dims : {Dims{40, 24}, Dims{64, 32}, Dims{80, 80}, Dims{112, 112}, Dims{160, 160},
                          Dims{192, 192}, Dims{248, 248}}) {
    append(shapes, padded_shapes(dims));
  }
  // More tiles than a GPU has blocks.
  append(shapes, {shape_of({70, 130, 65}, {4, 1}, {80, 80}, {{"causal", 1}, {"lse", 1}}),
                  shape_of({70, 140, 140}, {4, 1}, {192, 192},
                           {{"causal", 1}, {"ragged", 1}, {"lens", 1}})});
  // Every multiple of 8 up to 256, and sizes that are none.
  for (int64_t d = 8; d <= 256; d += 8) {
    const int64_t keys = keys_for(d);
    append(shapes, {shape_of({2, std::min<int64_t>(keys, 70), keys}, {2, 1}, {d, d},
                             {{"causal", 1}, {"lse", 1}})});
  }
  for (const int64_t d : {26, 36, 50, 100, 130, 250}) {
    append(shapes,
           {shape_of({2, 65, 100}, {2, 1}, {d, d}, {{"causal", 1}}),
            shape_of({3, 33, 70}, {4, 2}, {d, d}, {{"causal", 1}, {"page", 16}, {"lens", 1}})});
  }
  return shapes;
}

std::vector<Workload> attention_workloads() {
  return {{"prefill/d64", square_shapes(64)},
          {"prefill/d128", square_shapes(128)},
          {"prefill/d256", square_shapes(256)},
          {"prefill/llama8b", llama8b_shapes()},
          {"prefill/short", {shape_of({16, 512, 512}, {32, 32}, {64, 64})}},
          {"prefill/e4m3", square_shapes(128, true)},
          {"prefill/e4m3_more", e4m3_shapes()},
          {"prefill/sizes", size_shapes()},
          {"prefill/heads", head_shapes()},
          {"prefill/paged", paged_shapes()},
          {"prefill/window", window_shapes()},
          {"prefill/intervals", interval_shapes()},
          {"prefill/types", type_shapes()}};
}

}  // namespace tessera::bench
