// Decode attention's shapes: small and awkward ones for tests, those of Llama 3 8B for benches.
// SPDX-License-Identifier: MIT
#include "bench/problems/decode_shapes.h"

#include <cmath>
#include <initializer_list>
#include <random>

#include "bench/problems/decode_layout.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {
namespace {

using ShapeOptions = std::initializer_list<std::pair<std::string, int64_t>>;

constexpr int64_t kPlain = option(KvFormat::plain), kE4m3 = option(KvFormat::e4m3);
constexpr int64_t kE5m2 = option(KvFormat::e5m2), kInt8 = option(KvFormat::int8);
constexpr int64_t kUint8 = option(KvFormat::uint8), kInt4 = option(KvFormat::int4);
constexpr int64_t kInt4Token = option(KvFormat::int4_token);

struct Lengths {
  int64_t batch, q_len, kv_len;  // q_len of 0: q has no such axis
};
struct Heads {
  int64_t heads, kv_heads;
};

Shape shape_of(Lengths l, Heads h, int64_t d, ShapeOptions options = {}) {
  Shape shape{{"batch", l.batch}};
  if (l.q_len != 0) shape.emplace_back("q_len", l.q_len);
  shape.emplace_back("kv_len", l.kv_len);
  shape.emplace_back("heads", h.heads);
  if (h.kv_heads != h.heads) shape.emplace_back("kv_heads", h.kv_heads);
  shape.emplace_back("d", d);
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

void append(std::vector<Shape>& all, const std::vector<Shape>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// For every head size: one key, lengths around a page, groups of one, some and many query heads,
// several new tokens, 16-bit and narrower caches.
std::vector<Shape> shapes_of_every_size(int64_t d) {
  return {shape_of({1, 0, 1}, {2, 2}, d, {{"lse", 1}}),
          shape_of({1, 0, 40}, {2, 1}, d, {{"page", 16}}),
          shape_of({2, 2, 64}, {8, 1}, d, {{"page", 64}, {"window", 30}}),
          shape_of({7, 0, 70}, {4, 1}, d, {{"page", 16}, {"pages", 40}, {"lens", 1}, {"lse", 1}}),
          shape_of({7, 0, 300}, {8, 2}, d, {{"page", 64}, {"pages", 40}, {"lens", 1}}),
          shape_of({3, 0, 100}, {2, 2}, d, {{"lens", 1}}),
          shape_of({2, 1, 200}, {32, 1}, d, {{"page", 32}, {"lse", 1}}),
          shape_of({5, 4, 130}, {4, 1}, d, {{"page", 16}, {"pages", 48}, {"lens", 1}, {"lse", 1}}),
          shape_of({6, 4, 130}, {8, 2}, d, {{"page", 16}, {"pages", 60}, {"lens", 1}, {"lse", 1}}),
          shape_of({2, 16, 65}, {2, 1}, d, {{"page", 16}, {"lens", 1}}),
          shape_of({2, 0, 600}, {8, 1}, d, {{"page", 128}, {"pages", 11}, {"lse", 1}}),
          shape_of({6, 0, 200}, {8, 2}, d,
                   {{"k_format", kInt4}, {"page", 64}, {"pages", 25}, {"lens", 1}})};
}

// One format with every option that its kernels accept.
std::vector<Shape> shapes_of_one_format(int64_t d, KvFormat format) {
  const int64_t k = option(format);
  const int64_t page = traits(format).has_tail() ? kKvGroup : 16;  // the smallest
  return {
      shape_of({1, 0, 40}, {2, 1}, d, {{"k_format", k}, {"page", page}}),
      shape_of({7, 0, 140}, {4, 1}, d,
               {{"k_format", k}, {"page", page}, {"pages", 70}, {"lens", 1}, {"lse", 1}}),
      shape_of({7, 0, 140}, {8, 2}, d, {{"k_format", k}, {"page", 32}, {"pages", 40}, {"lens", 1}}),
      shape_of({3, 0, 256}, {2, 2}, d, {{"k_format", k}, {"lens", 1}}),
      shape_of({3, 4, 300}, {8, 1}, d, {{"k_format", k}, {"page", 64}, {"lens", 1}, {"lse", 1}}),
      shape_of({2, 16, 100}, {4, 1}, d, {{"k_format", k}, {"page", 32}, {"strided", 1}}),
      shape_of({2, 0, 1500}, {8, 1}, d,
               {{"k_format", k}, {"page", 128}, {"pages", 25}, {"window", 900}, {"longest", 1}}),
      shape_of({2, 0, 200}, {16, 2}, d,
               {{"k_format", k}, {"page", page}, {"softcap", 1}, {"sinks", 1}}),
      shape_of({3, 2, 200}, {4, 2}, d, {{"k_format", k}, {"page", 32}, {"alibi", 1}, {"lse", 1}}),
      shape_of({2, 5, 200}, {4, 2}, d, {{"k_format", k}, {"page", 64}, {"tree", 1}, {"lens", 1}})};
}

// Each format, with and without pages, heads before tokens and unaligned rows; then keys and values
// in different formats.
std::vector<Shape> format_shapes(int64_t d) {
  std::vector<Shape> shapes;
  for (const KvFormatTraits& traits : kKvFormats) {
    const int64_t stored = option(traits.format);
    append(
        shapes,
        {shape_of({5, 0, 150}, {8, 2}, d,
                  {{"k_format", stored}, {"page", 32}, {"pages", 30}, {"lens", 1}, {"lse", 1}}),
         shape_of({3, 3, 97}, {4, 2}, d, {{"k_format", stored}, {"lens", 1}, {"head_scales", 2}}),
         shape_of({2, 0, 100}, {4, 2}, d,
                  {{"k_format", stored}, {"page", 64}, {"strided", 1}, {"head_scales", 1}}),
         shape_of({2, 0, 100}, {4, 2}, d, {{"k_format", stored}, {"page", 32}, {"strided", 2}}),
         shape_of({2, 2, 70}, {6, 3}, d, {{"k_format", stored}, {"page", 32}, {"strided", 3}})});
  }
  for (const auto& [k, v] : {std::pair{kPlain, kInt8},
                             {kInt8, kPlain},
                             {kE4m3, kE5m2},
                             {kInt8, kE4m3},
                             {kInt4Token, kUint8},
                             {kUint8, kInt4Token},
                             {kInt4, kPlain},
                             {kInt4, kE4m3},
                             {kInt4, kInt8},
                             {kPlain, kInt4Token}}) {
    shapes.push_back(
        shape_of({3, 0, 150}, {4, 1}, d,
                 {{"k_format", k}, {"v_format", v}, {"page", 32}, {"pages", 15}, {"lens", 1}}));
  }
  for (const DType tail : {DType::f32, DType::f16, DType::bf16}) {
    shapes.push_back(
        shape_of({6, 4, 130}, {4, 2}, d,
                 {{"k_format", kInt4}, {"tail_dtype", option(tail)}, {"page", 32}, {"lens", 1}}));
  }
  return shapes;
}

std::vector<Shape> page_shapes(int64_t d) {
  return {
      shape_of({0, 0, 5}, {2, 2}, d),
      shape_of({6, 0, 40}, {4, 2}, d, {{"page", 1}, {"pages", 250}, {"lens", 1}}),
      shape_of({3, 0, 50}, {4, 2}, d, {{"page", 7}, {"lens", 1}, {"lse", 1}}),
      shape_of({4, 0, 100}, {4, 2}, d, {{"page", 16}, {"shared", 3}, {"lens", 1}}),
      shape_of({4, 2, 100}, {4, 2}, d, {{"page", 16}, {"shared", 6}, {"pages", 28}}),
      shape_of({4, 0, 300}, {4, 2}, d, {{"page", 16}, {"shared", 6}, {"says_shared", 1}}),
      shape_of({3, 0, 100}, {4, 2}, d, {{"in_place", 1}, {"page", 16}, {"pages", 21}}),
      shape_of({4, 0, 150}, {4, 2}, d, {{"page", 16}, {"repeats", 1}, {"lens", 1}, {"lse", 1}}),
      shape_of({3, 2, 300}, {4, 2}, d, {{"k_format", kInt8}, {"page", 32}, {"repeats", 1}}),
      shape_of({2, 4, 1200}, {8, 2}, d, {{"in_place", 1}, {"page", 64}}),
      shape_of({40, 0, 60}, {3, 3}, d, {{"page", 16}, {"pages", 160}, {"lens", 1}}),
      // Several pieces per sequence, and fewer for short ones, in one call.
      shape_of({7, 0, 2000}, {4, 1}, d, {{"page", 64}, {"pages", 230}, {"lens", 1}, {"lse", 1}}),
      shape_of({3, 0, 4000}, {2, 2}, d, {{"lens", 1}, {"lse", 1}}),
      shape_of({3, 0, 1000}, {4, 1}, d, {{"page", 64}, {"blocks", 1}, {"longest", 1}}),
      shape_of({3, 0, 4000}, {4, 1}, d, {{"k_format", kInt8}, {"page", 128}, {"pages", 97}}),
      shape_of({2, 0, 9000}, {4, 1}, d, {{"page", 16}, {"pages", 1130}}),
      shape_of({2, 0, 4000}, {4, 1}, d,
               {{"k_format", kInt4}, {"page", 64}, {"pages", 130}, {"lens", 1}})};
}

std::vector<Shape> option_shapes(int64_t d) {
  return {
      shape_of({3, 0, 200}, {4, 2}, d, {{"page", 16}, {"pages", 39}, {"window", 40}}),
      shape_of({3, 4, 200}, {4, 2}, d, {{"window", 3}, {"lens", 1}, {"lse", 1}}),
      shape_of({2, 0, 3000}, {4, 1}, d, {{"page", 16}, {"window", 700}, {"lse", 1}}),
      shape_of({3, 0, 150}, {4, 2}, d, {{"page", 16}, {"softcap", 1}, {"lse", 1}, {"lens", 1}}),
      shape_of({3, 0, 150}, {4, 2}, d, {{"page", 16}, {"sinks", 1}, {"lse", 1}, {"lens", 1}}),
      shape_of({3, 2, 150}, {4, 2}, d, {{"page", 16}, {"alibi", 1}, {"lse", 1}, {"lens", 1}}),
      shape_of({3, 2, 150}, {8, 2}, d,
               {{"softcap", 1}, {"alibi", 1}, {"sinks", 1}, {"window", 70}, {"lse", 1}}),
      shape_of({3, 4, 100}, {4, 2}, d, {{"page", 16}, {"pages", 21}, {"tree", 1}, {"lens", 1}}),
      shape_of({3, 16, 100}, {8, 2}, d, {{"tree", 1}, {"lens", 1}, {"lse", 1}}),
      shape_of({2, 5, 1000}, {8, 2}, d, {{"page", 64}, {"tree", 1}, {"window", 600}}),
      shape_of({5, 0, 200}, {4, 2}, d, {{"page", 16}, {"blocks", 1}, {"lens", 1}, {"lse", 1}}),
      shape_of({2, 3, 2000}, {4, 1}, d, {{"page", 64}, {"blocks", 1}, {"k_format", kInt8}}),
      shape_of({5, 0, 200}, {4, 2}, d, {{"page", 32}, {"keys", 50}, {"lens", 1}, {"lse", 1}}),
      shape_of({2, 3, 300}, {12, 1}, d, {{"keys", 300}, {"page", 16}, {"window", 150}}),
      shape_of({2, 4, 200}, {4, 2}, d, {{"keys", 64}, {"blocks", 1}, {"page", 16}, {"tree", 1}}),
      shape_of({3, 4, 150}, {4, 2}, d,
               {{"keys", 80}, {"k_format", kInt4}, {"page", 32}, {"lens", 1}}),
      shape_of({3, 2, 150}, {4, 2}, d,
               {{"blocks", 1}, {"k_format", kInt4}, {"page", 32}, {"sinks", 1}}),
      shape_of({2, 1, 1500}, {4, 2}, d, {{"keys", 1400}, {"page", 16}, {"lse", 1}})};
}

constexpr Heads kLlama{32, 8};
constexpr int64_t kDim = 128;
constexpr const char* kOrder = "strided";  // of 1: heads before tokens

// Llama 3 8B, as long as keys and values in 16 bits fit.
std::vector<Shape> llama8b_shapes(int64_t most_bytes) {
  std::vector<Shape> shapes;
  for (const int64_t batch : {1, 4, 8, 16, 32, 64, 128}) {
    for (const int64_t kv_len : {1024, 4096, 8192, 32768, 131072}) {
      if (4 * batch * kv_len * kLlama.kv_heads * kDim > most_bytes) continue;
      shapes.push_back(shape_of({batch, 0, kv_len}, kLlama, kDim));
    }
  }
  return shapes;
}

// Batches of 1 to 200, 100 to 60,000 tokens, 8 to 64 heads over 1 to 16: sizes between the powers
// of two that plans could be tuned to. Batches and lengths are drawn evenly on a logarithmic scale.
std::vector<Shape> random_shapes(size_t count, int64_t most_bytes) {
  std::mt19937_64 bits(2024);
  const auto uniform = [&] { return static_cast<double>(bits() >> 11) * 0x1p-53; };
  const auto log_uniform = [&](double low, double high) {
    return std::llround(low * std::pow(high / low, uniform()));
  };
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(uniform() * static_cast<double>(high - low + 1));
  };
  std::vector<Shape> shapes;
  while (shapes.size() < count) {
    const int64_t batch = log_uniform(1, 200), kv_len = log_uniform(100, 60000);
    const int64_t kv_heads = pick(1, 16);
    const int64_t group = pick((8 + kv_heads - 1) / kv_heads, 64 / kv_heads);
    if (4 * batch * kv_len * kv_heads * kDim > most_bytes) continue;
    shapes.push_back(shape_of({batch, 0, kv_len}, {group * kv_heads, kv_heads}, kDim));
  }
  return shapes;
}

// Compared to the same keys without pages.
std::vector<Shape> paged_shapes() {
  std::vector<Shape> shapes;
  for (const auto& [batch, kv_len] :
       {std::pair<int64_t, int64_t>{1, 8192}, {1, 131072}, {8, 4096}, {32, 8192}, {128, 1024}}) {
    const Shape plain = shape_of({batch, 0, kv_len}, kLlama, kDim);
    append(shapes, {plain, with_value(plain, "page", 16), with_value(plain, "page", 64)});
  }
  return shapes;
}

Shape stored_as(Shape shape, KvFormat format) {
  shape = with_value(std::move(shape), "k_format", option(format));
  return traits(format).has_tail() ? with_value(std::move(shape), "tails", 128) : shape;
}

std::vector<Shape> layout_shapes() {
  std::vector<Shape> shapes;
  for (const KvFormat stored :
       {KvFormat::plain, KvFormat::e4m3, KvFormat::int8, KvFormat::int4_token, KvFormat::int4}) {
    for (const auto& [batch, kv_len] :
         {std::pair<int64_t, int64_t>{8, 4096}, {32, 8192}, {128, 1024}, {128, 4096}}) {
      const Shape shape = stored_as(shape_of({batch, 0, kv_len}, kLlama, kDim), stored);
      append(shapes, {shape, with_value(shape, kOrder, 1)});
    }
  }
  return shapes;
}

std::vector<Shape> stored_shapes(const std::vector<Shape>& plain,
                                 std::initializer_list<KvFormat> formats) {
  std::vector<Shape> shapes;
  for (const KvFormat stored : formats) {
    for (const Shape& shape : plain) {
      // Quantised pages have heads before tokens, as in the engine.
      shapes.push_back(stored == KvFormat::plain ? shape
                                                 : with_value(stored_as(shape, stored), kOrder, 1));
    }
  }
  return shapes;
}

std::vector<Shape> head_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t d : {80, 96, 112, 160, 192}) {
    append(shapes,
           {shape_of({8, 0, 4096}, kLlama, d), shape_of({32, 0, 8192}, kLlama, d, {{"page", 64}})});
  }
  return shapes;
}

}  // namespace

// Every way in which softmax states wait to be merged, and every kind of block, on an H200. Without
// pages, a quantised cache must have room for a multiple of 16 tokens, or the Hopper kernel refuses
// it.
std::vector<Shape> decode_plan_shapes() {
  return {
      // Warps with 8 leaves, whose states wait for each other, with four queries and with more;
      // small blocks with 32 and with 16.
      shape_of({27, 0, 8200}, {32, 8}, 64,
               {{"page", 64}, {"pages", 400}, {"shared", 120}, {"lens", 1}}),
      shape_of({15, 0, 8192}, {40, 8}, 128,
               {{"page", 64}, {"pages", 260}, {"shared", 120}, {"lse", 1}}),
      shape_of({11, 0, 33000}, {40, 8}, 64,
               {{"page", 64}, {"pages", 700}, {"shared", 500}, {"lens", 1}}),
      shape_of({14, 0, 33000}, {8, 8}, 64,
               {{"page", 64}, {"pages", 800}, {"shared", 500}, {"lse", 1}}),
      shape_of({8, 0, 33000}, {8, 8}, 128,
               {{"page", 64}, {"pages", 660}, {"shared", 500}, {"lens", 1}}),
      // Small blocks for many short sequences.
      shape_of({35, 0, 300}, {16, 4}, 128, {{"longest", 1}, {"lens", 1}}),
      shape_of({35, 0, 1100}, {20, 4}, 64, {{"page", 16}, {"lse", 1}}),
      // More than eight queries per KV head: blocks of sixteen, with eight leaves per warp, in
      // pairs and in small blocks; blocks of eight.
      shape_of({16, 0, 8200}, {96, 8}, 128,
               {{"page", 64}, {"pages", 280}, {"shared", 120}, {"lens", 1}}),
      shape_of({12, 0, 2100}, {96, 8}, 64, {{"longest", 1}, {"lens", 1}, {"lse", 1}}),
      shape_of({10, 0, 1100}, {192, 8}, 128, {{"page", 16}, {"lens", 1}}),
      shape_of({20, 0, 300}, {96, 8}, 64, {{"page", 16}, {"sinks", 1}, {"lens", 1}}),
      shape_of({8, 0, 300}, {192, 8}, 64, {{"lens", 1}, {"lse", 1}}),
      // Heads of 256, whose states do not wait.
      shape_of({9, 0, 2100}, {8, 8}, 256, {{"longest", 1}, {"lens", 1}}),
      // Quantised: four leaves per warp, and eight.
      shape_of({18, 0, 4208}, {16, 4}, 128, {{"k_format", kE4m3}, {"longest", 1}, {"lens", 1}}),
      shape_of({18, 0, 4208}, {16, 4}, 128, {{"k_format", kInt8}, {"longest", 1}, {"lens", 1}}),
      shape_of({18, 0, 4208}, {16, 4}, 128, {{"k_format", kInt4Token}, {"longest", 1}, {"lse", 1}}),
      shape_of({18, 0, 16400}, {4, 4}, 64,
               {{"k_format", kInt8}, {"page", 64}, {"pages", 560}, {"shared", 240}, {"lse", 1}}),
      shape_of(
          {18, 0, 16400}, {4, 4}, 64,
          {{"k_format", kInt4Token}, {"page", 64}, {"pages", 560}, {"shared", 240}, {"lens", 1}}),
      // So many heads that warps have two leaves, in blocks of eight and of four warps.
      shape_of({18, 0, 2112}, {16, 4}, 128, {{"k_format", kE4m3}, {"longest", 1}, {"lens", 1}}),
      shape_of({18, 0, 2112}, {16, 4}, 128, {{"k_format", kInt8}, {"longest", 1}, {"lens", 1}}),
      shape_of({18, 0, 2100}, {16, 4}, 128, {{"k_format", kInt4}, {"tails", 18}, {"page", 32}}),
      shape_of({70, 0, 304}, {16, 4}, 128,
               {{"k_format", kInt4Token}, {"longest", 1}, {"lens", 1}})};
}

std::vector<Shape> decode_test_shapes() {
  std::vector<Shape> shapes;
  for (const int64_t d : {64, 96, 128, 256}) {
    append(shapes, shapes_of_every_size(d));
    for (const KvFormat k :
         {KvFormat::e4m3, KvFormat::e5m2, KvFormat::int8, KvFormat::uint8, KvFormat::int4_token}) {
      append(shapes, shapes_of_one_format(d, k));
    }
  }
  for (const int64_t d : {64, 128}) {
    append(shapes, shapes_of_one_format(d, KvFormat::int4));
    append(shapes, format_shapes(d));
    append(shapes, page_shapes(d));
    append(shapes, option_shapes(d));
  }
  for (const int64_t d : {80, 112, 160, 192}) {
    append(shapes, shapes_of_every_size(d));
    append(shapes, shapes_of_one_format(d, KvFormat::plain));
  }
  // Sizes whose quantised rows are no whole chunks of 16 bytes, in every format.
  for (const int64_t d : {24, 40, 72, 80, 104, 112, 136, 160, 184, 200, 248}) {
    for (const KvFormatTraits& traits : kKvFormats) {
      const int64_t stored = option(traits.format);
      append(shapes, {shape_of({3, 0, 70}, {4, 2}, d,
                               {{"k_format", stored}, {"page", 32}, {"pages", 12}, {"lens", 1}}),
                      shape_of({2, 2, 97}, {4, 1}, d, {{"k_format", stored}, {"lse", 1}}),
                      shape_of({2, 0, 100}, {4, 2}, d,
                               {{"k_format", stored}, {"page", 64}, {"strided", 1}})});
    }
  }
  // Sizes that no vector fits.
  for (const int64_t d : {33, 40, 100, 203}) {
    append(shapes, {shape_of({5, 0, 100}, {4, 2}, d, {{"page", 16}, {"lens", 1}, {"lse", 1}}),
                    shape_of({3, 3, 300}, {6, 2}, d,
                             {{"k_format", kInt8}, {"v_format", kE4m3}, {"lens", 1}})});
  }
  append(
      shapes,
      {shape_of({3, 3, 300}, {6, 2}, 100, {{"k_format", kInt4}, {"page", 32}, {"lens", 1}}),
       shape_of({3, 0, 300}, {6, 2}, 100, {{"k_format", kInt4Token}, {"page", 16}, {"strided", 3}}),
       shape_of({1, 0, 8}, {2, 1}, 8),
       // As long as contexts get.
       shape_of({1, 0, 131072}, {2, 1}, 64, {{"page", 16}, {"lse", 1}}),
       shape_of({1, 0, 131072}, {4, 1}, 128, {{"longest", 1}}),
       shape_of({1, 0, 131072}, {4, 1}, 128, {{"k_format", kInt8}, {"longest", 1}}),
       shape_of({1, 0, 131072}, {4, 1}, 128, {{"k_format", kInt4Token}, {"lse", 1}})});
  append(shapes, decode_plan_shapes());
  return shapes;
}

std::vector<Workload> decode_workloads() {
  constexpr int64_t kGigabyte = int64_t{1} << 30;
  const Shape reference = shape_of({8, 0, 4096}, kLlama, kDim);
  return {
      {"decode/llama8b", llama8b_shapes(24 * kGigabyte)},
      {"decode/random", random_shapes(60, 24 * kGigabyte)},
      {"decode/paged", paged_shapes()},
      {"decode/formats",
       stored_shapes(llama8b_shapes(4 * kGigabyte),
                     {KvFormat::e4m3, KvFormat::int8, KvFormat::int4_token, KvFormat::int4})},
      {"decode/reference", stored_shapes({reference}, {KvFormat::plain, KvFormat::int8,
                                                       KvFormat::e4m3, KvFormat::int4_token})},
      // Tokens before heads, then heads before tokens.
      {"decode/layout", layout_shapes()},
      // To show what a cascade saves: the same sequences without one, with and without the L2 hint.
      {"decode/cascade",
       {shape_of({64, 0, 8704}, kLlama, kDim,
                 {{"page", 64}, {"pages", 700}, {"shared", 128}, {"longest", 1}}),
        shape_of(
            {64, 0, 8704}, kLlama, kDim,
            {{"page", 64}, {"pages", 700}, {"shared", 128}, {"longest", 1}, {"says_shared", 1}}),
        shape_of({16, 0, 4608}, kLlama, kDim,
                 {{"page", 64}, {"pages", 200}, {"shared", 64}, {"longest", 1}})}},
      // Heads that other models have.
      {"decode/heads", head_shapes()},
      {"decode/types", {shape_of({8, 0, 1024}, kLlama, kDim)}}};
}

}  // namespace tessera::bench
