// Problems for pages of a KV cache read back, and for pages copied.
// SPDX-License-Identifier: MIT
//
// Sizes: of a gather batch, len (the longest sequence), of a copy copies; kv_heads, d, page
// (absent: 64). Options: those of the pools (kv_pool.h), lens (lengths vary, some are 0), table (0:
// one page per sequence). Results must equal the CPU's bit for bit.
#include "bench/problems/kv_pool.h"
#include "bench/problems/makers.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {
namespace {

using ShapeOptions = std::initializer_list<std::pair<std::string, int64_t>>;

std::vector<int64_t> shuffled(int64_t count, Random random) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (size_t i = order.size(); i-- > 1;) {
    const auto at = random.integer(static_cast<int64_t>(i), 0, static_cast<int64_t>(i));
    std::swap(order[i], order[static_cast<size_t>(at)]);
  }
  return order;
}

std::vector<int64_t> lengths_of(const Builder& b, Random random) {
  const int64_t batch = b.get("batch"), longest = b.get("len");
  std::vector<int64_t> lengths(static_cast<size_t>(batch), longest);
  for (int64_t s = 1; b.get("lens") != 0 && s < batch; ++s) {
    lengths[static_cast<size_t>(s)] = s % 5 == 2 ? 0 : random.integer(s, 1, longest);
  }
  return lengths;
}

Problem make_gather(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"batch", "len", "kv_heads", "d", "page", "k_format", "v_format", "k_scales",
             "v_scales", "k_dtype", "v_dtype", "lens", "table", "heads_first", "inside", "shift"});
  const int64_t batch = b.get("batch"), heads = b.get("kv_heads"), d = b.get("d");
  const int64_t page = b.get("page", 64);
  const bool has_table = b.get("table", 1) != 0;
  const std::vector<int64_t> lengths = lengths_of(b, b.random());
  const int64_t max_pages = has_table ? (b.get("len") + page - 1) / page : 1;
  const int64_t num_pages = has_table ? batch * max_pages + 2 : batch;
  const std::vector<int64_t> order = shuffled(num_pages, b.random());
  // Rows in another order than sequences, with three unused rows after each.
  std::vector<int64_t> starts(lengths.size());
  int64_t num_rows = 0;
  for (size_t s = lengths.size(); s-- > 0;) {
    starts[s] = num_rows;
    num_rows += lengths[s] + 3;
  }

  const auto at = [](const std::vector<int64_t>& values) {
    return [&values](int64_t i) { return static_cast<float>(values[static_cast<size_t>(i)]); };
  };
  fill_vector(b.dense("seq_lens", Role::input, DType::i32, {batch}), at(lengths));
  fill_vector(b.dense("starts", Role::input, DType::i32, {batch}), at(starts));
  b.dense("k", Role::output, key.out, {num_rows, heads, d});
  b.dense("v", Role::output, key.out, {num_rows, heads, d});
  const PoolSizes sizes = pool_sizes(b, num_pages, page);
  const Pool k_pool(b, "k", Role::input, pool_format(b, "k", key.in), sizes, 4);
  const Pool v_pool(b, "v", Role::input, pool_format(b, "v", key.in), sizes,
                    4 + k_pool.num_operands());
  const size_t table_at = 4 + k_pool.num_operands() + v_pool.num_operands();
  if (has_table) {
    fill_rows(b.dense("page_table", Role::input, DType::i32, {batch, max_pages}),
              [&](int64_t s, int64_t i) {  // entries beyond a sequence are never read
                if (i * page >= lengths[static_cast<size_t>(s)]) return -7.0f;
                return static_cast<float>(order[static_cast<size_t>(s * max_pages + i)]);
              });
  }
  const size_t tail_at = table_at + (has_table ? 1 : 0);
  const bool has_tail = traits(pool_format(b, "k", key.in).format).has_tail();
  if (has_tail) {
    fill_normal(b.dense("k_tail", Role::input, key.in, {batch + 1, kKvGroup, heads, d}),
                b.random());
    fill_vector(b.dense("tails", Role::input, DType::i32, {batch}),
                [&](int64_t s) { return static_cast<float>(batch - s); });
  }
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    PagedKv kv{.k_pages = k_pool.pages(views),
               .v_pages = v_pool.pages(views),
               .page_table = has_table ? views[table_at] : TensorView{},
               .seq_lens = views[0],
               .k_scales = k_pool.scales(views),
               .v_scales = v_pool.scales(views)};
    if (has_tail) kv.k_tail = views[tail_at], kv.tails = views[tail_at + 1];
    kv_gather({.kv = kv, .starts = views[1], .k = views[2], .v = views[3]}, ctx);
  };
  Problem problem = b.finish(call, 0, "");
  const Random random = Random{seed}.stream(1000);
  k_pool.fill(problem.operands, random.stream(0));
  v_pool.fill(problem.operands, random.stream(1));
  double tokens = 0;
  for (const int64_t length : lengths) tokens += static_cast<double>(length);
  problem.bytes = tokens * (k_pool.token_bytes() + v_pool.token_bytes() +
                            2.0 * static_cast<double>(storage_bytes(key.out, heads * d)));
  return problem;
}

Problem make_copy(RowKey, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"copies", "kv_heads", "d", "page", "k_format", "v_format", "k_scales", "v_scales",
             "k_dtype", "v_dtype", "heads_first", "inside", "shift"});
  const int64_t copies = b.get("copies"), num_pages = 2 * copies + 1;
  const std::vector<int64_t> order = shuffled(num_pages, b.random());
  // A page may be copied to several targets, so the first has two.
  fill_vector(b.dense("sources", Role::input, DType::i32, {copies}), [&](int64_t i) {
    return static_cast<float>(order[static_cast<size_t>(i == 1 ? 0 : i)]);
  });
  fill_vector(b.dense("targets", Role::input, DType::i32, {copies}), [&](int64_t i) {
    return static_cast<float>(order[static_cast<size_t>(copies + i)]);
  });
  const PoolSizes sizes = pool_sizes(b, num_pages, b.get("page", 64));
  const Pool k_pool(b, "k", Role::in_out, pool_format(b, "k", DType::bf16), sizes, 2);
  const Pool v_pool(b, "v", Role::in_out, pool_format(b, "v", DType::bf16), sizes,
                    2 + k_pool.num_operands());
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    const auto of_pages = [](const TensorView& scales) {
      return scales.rank >= 4 ? scales : TensorView{};
    };
    kv_copy_pages({.k_pages = k_pool.pages(views),
                   .v_pages = v_pool.pages(views),
                   .sources = views[0],
                   .targets = views[1],
                   .k_scales = of_pages(k_pool.scales(views)),
                   .v_scales = of_pages(v_pool.scales(views))},
                  ctx);
  };
  Problem problem = b.finish(call, 0, "");
  const Random random = Random{seed}.stream(1000);
  k_pool.fill(problem.operands, random.stream(0));
  v_pool.fill(problem.operands, random.stream(1));
  problem.bytes = 2.0 * static_cast<double>(copies) * (k_pool.page_bytes() + v_pool.page_bytes());
  return problem;
}

bool any_fits(RowKey, const Shape&) { return true; }

Shape with_options(Shape shape, ShapeOptions options) {
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

using enum KvFormat;

Shape with_formats(Shape shape, PoolOption k, PoolOption v, ShapeOptions options) {
  append_options(shape, k, v);
  return with_options(std::move(shape), options);
}

Shape gather_shape(int64_t batch, int64_t len, int64_t d, PoolOption k, PoolOption v,
                   ShapeOptions options = {}) {
  return with_formats({{"batch", batch}, {"len", len}, {"kv_heads", 2}, {"d", d}}, k, v, options);
}

Shape copy_shape(int64_t copies, int64_t d, PoolOption k, PoolOption v, ShapeOptions options = {}) {
  return with_formats({{"copies", copies}, {"kv_heads", 2}, {"d", d}}, k, v, options);
}

constexpr std::pair<PoolOption, PoolOption> kFormats[] = {
    {{plain}, {plain}},
    {{e4m3}, {e4m3, 1}},
    {{e4m3, 1}, {e4m3, 2}},
    {{e4m3, 2}, {e4m3}},
    {{e5m2}, {e5m2}},
    {{int8}, {int8}},
    {{uint8}, {uint8}},
    {{int4_token}, {int4_token}},
    {{int4}, {int4_token}},
    {{int4}, {plain}},
    {{plain, 0, DType::f32}, {plain, 0, DType::f16}},
    {{plain, 0, DType::f16}, {plain, 0, DType::bf16}},
    {{plain, 0, DType::bf16}, {plain, 0, DType::f32}}};

std::vector<Shape> gather_tests() {
  std::vector<Shape> shapes{gather_shape(1, 1, 1, {plain}, {plain}),
                            gather_shape(0, 1, 64, {plain}, {plain}),
                            gather_shape(3, 64, 64, {plain}, {plain}, {{"table", 0}, {"lens", 1}}),
                            gather_shape(70, 200, 64, {int8}, {int4_token}, {{"lens", 1}}),
                            gather_shape(3, 64, 64, {int4}, {uint8}, {{"table", 0}, {"lens", 1}})};
  for (const auto& [k, v] : kFormats) {
    shapes.push_back(gather_shape(5, 130, 128, k, v, {{"lens", 1}}));
    shapes.push_back(gather_shape(3, 70, 64, k, v, {{"inside", 1}, {"heads_first", 1}}));
    shapes.push_back(gather_shape(3, 70, 96, k, v, {{"lens", 1}, {"page", 32}}));
    shapes.push_back(gather_shape(2, 40, 7, k, v, {{"lens", 1}}));
    shapes.push_back(gather_shape(2, 40, 24, k, v, {{"inside", 2}, {"shift", 4}}));
    shapes.push_back(gather_shape(2, 40, 300, k, v));
  }
  return shapes;
}

std::vector<Shape> copy_tests() {
  std::vector<Shape> shapes{copy_shape(0, 64, {plain}, {plain}),
                            copy_shape(1, 1, {int4_token}, {int8}, {{"page", 1}}),
                            copy_shape(40, 128, {plain}, {int8}, {{"page", 16}}),
                            copy_shape(3, 128, {plain}, {plain}, {{"page", 256}})};
  for (const auto& [k, v] : kFormats) {
    shapes.push_back(copy_shape(3, 128, k, v));
    shapes.push_back(copy_shape(5, 64, k, v, {{"inside", 1}, {"heads_first", 1}, {"page", 32}}));
    shapes.push_back(copy_shape(2, 7, k, v, {{"page", 32}}));
    shapes.push_back(copy_shape(4, 24, k, v, {{"inside", 2}, {"shift", 4}, {"page", 32}}));
  }
  return shapes;
}

// Llama 3 8B's heads in pages of 16 tokens.
Shape of_llama(Shape shape, PoolOption format) {
  shape = with_options(std::move(shape), {{"kv_heads", 8}, {"d", 128}, {"page", 16}});
  return with_formats(std::move(shape), format, format, {});
}

}  // namespace

ProblemMaker kv_gather_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  std::vector<Shape> shapes;
  for (const PoolOption format : kPoolWorkloads) {
    shapes.push_back(of_llama({{"batch", 16}, {"len", 4096}}, format));
  }
  return {"kv_gather", &make_gather, &any_fits, keys, gather_tests(), {{"kv/gather", shapes}},
          "kv"};
}

ProblemMaker kv_copy_pages_maker() {
  std::vector<Shape> shapes;
  for (const int64_t copies : {16, 512, 4096}) {
    shapes.push_back(of_llama({{"copies", copies}}, {plain}));
    shapes.push_back(of_llama({{"copies", copies}}, {int8}));
  }
  return {"kv_copy_pages",       &make_copy, &any_fits, {{DType::u8, DType::u8}}, copy_tests(),
          {{"kv/copy", shapes}}, "kv"};
}

}  // namespace tessera::bench
