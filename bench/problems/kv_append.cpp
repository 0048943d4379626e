// Problems for appending new tokens to a KV cache.
// SPDX-License-Identifier: MIT
//
// Sizes: tokens, seqs (absent: 1; tokens are divided among them), heads (of q), kv_heads, d, page
// (absent: 64), rotary (absent: d). Options: those of the pools (kv_pool.h), rope (1 half_split, 2
// interleaved), past (tokens of a sequence before the call; absent: some), skips (every 11th token
// has no slot), i64 (slots, and positions; tail slots are then i32), gap (elements between heads of
// q, k and v), special (NaN, infinities and large numbers among the values; without rope).
//
// Everything must equal the CPU's result bit for bit: rotated values, codes, scales and tails.
#include "bench/problems/kv_pool.h"
#include "bench/problems/makers.h"
#include "core/parallel.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {
namespace {

// Where each token of the call goes.
struct Places {
  std::vector<int64_t> slots, tail_slots, positions;
  int64_t num_pages = 0, num_tails = 0;
};

// Sequences one after the other, each with its own pages in random order; two pages are unused.
Places find_places(const Builder& b, int64_t page_size, Random random) {
  const int64_t tokens = b.get("tokens"), seqs = b.get("seqs", 1);
  const auto count_of = [&](int64_t s) { return tokens / seqs + (s < tokens % seqs ? 1 : 0); };
  const auto past_of = [&](int64_t s) { return b.get("past", (13 * s + 5) % 70); };
  const auto pages_of = [&](int64_t s) {
    return (past_of(s) + count_of(s) + page_size - 1) / page_size;
  };
  Places places;
  places.num_tails = seqs + 1;
  for (int64_t s = 0; s < seqs; ++s) places.num_pages += pages_of(s);
  places.num_pages += 2;
  std::vector<int64_t> order(static_cast<size_t>(places.num_pages));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  for (size_t i = order.size(); i-- > 1;) {
    const auto at = random.integer(static_cast<int64_t>(i), 0, static_cast<int64_t>(i));
    std::swap(order[i], order[static_cast<size_t>(at)]);
  }
  int64_t first_page = 0;
  for (int64_t s = 0; s < seqs; ++s) {
    for (int64_t t = past_of(s); t < past_of(s) + count_of(s); ++t) {
      const int64_t page = order[static_cast<size_t>(first_page + t / page_size)];
      const bool is_skipped = b.get("skips") != 0 && places.slots.size() % 11 == 7;
      places.slots.push_back(is_skipped ? -1 : page * page_size + t % page_size);
      places.tail_slots.push_back((seqs - s) * kKvGroup + t % kKvGroup);
      places.positions.push_back(t);
    }
    first_page += pages_of(s);
  }
  return places;
}

class Maker {
 public:
  Maker(RowKey key, Builder& b)
      : b_(b),
        dtype_(key.in),
        tokens_(b.get("tokens")),
        d_(b.get("d")),
        rope_(b.get("rope")),
        rotary_(b.get("rotary", d_)),
        page_(b.get("page", 64)),
        places_(find_places(b, page_, b.random())) {}

  Problem make() {
    const int64_t kv_heads = b_.get("kv_heads");
    const bool is_long = b_.get("i64") != 0;
    const PoolFormat k_format = pool_format(b_, "k", dtype_);
    const PoolFormat v_format = pool_format(b_, "v", dtype_);
    add_heads("k", rope_ != 0 ? Role::in_out : Role::input, kv_heads);
    add_heads("v", Role::input, kv_heads);
    add_indices("slots", is_long, places_.slots);
    const PoolSizes sizes = pool_sizes(b_, places_.num_pages, page_);
    const Pool k_pool(b_, "k", Role::in_out, k_format, sizes, 3);
    const Pool v_pool(b_, "v", Role::in_out, v_format, sizes, 3 + k_pool.num_operands());
    const size_t tail_at = 3 + k_pool.num_operands() + v_pool.num_operands();
    const bool has_tail = traits(k_format.format).has_tail();
    if (has_tail) {
      Operand& tail =
          b_.dense("k_tail", Role::in_out, dtype_, {places_.num_tails, kKvGroup, kv_heads, d_});
      fill_numbers(tail, 0);
      add_indices("tail_slots", !is_long, places_.tail_slots);
    }
    const size_t rope_at = tail_at + (has_tail ? 2 : 0);
    if (rope_ != 0) add_rope();
    const bool has_rope = rope_ != 0;
    const auto style = rope_ == 2 ? RopeStyle::interleaved : RopeStyle::half_split;
    const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
      KvAppendArgs args{.k = views[0],
                        .v = views[1],
                        .slots = views[2],
                        .k_pages = k_pool.pages(views),
                        .v_pages = v_pool.pages(views),
                        .k_scales = k_pool.scales(views),
                        .v_scales = v_pool.scales(views)};
      if (has_tail) args.k_tail = views[tail_at], args.tail_slots = views[tail_at + 1];
      if (has_rope) {
        args.rope = KvRope{.q = views[rope_at],
                           .positions = views[rope_at + 1],
                           .table = views[rope_at + 2],
                           .style = style};
      }
      kv_append(args, ctx);
    };
    const int64_t heads = rope_ != 0 ? b_.get("heads") + kv_heads : 0;
    const auto rotated = static_cast<double>(tokens_ * heads * rotary_);
    Problem problem = b_.finish(call, 3.0 * rotated, "");
    const auto count = static_cast<double>(tokens_);
    const double width = bit_width(dtype_) / 8.0;
    // q and k are read and written if they are rotated; k, like v, is read in any case.
    problem.bytes = 2.0 * rotated * width + count * static_cast<double>(kv_heads * d_) * width +
                    count * (k_pool.token_bytes() + v_pool.token_bytes()) +
                    count * (is_long ? 8.0 : 4.0);
    if (rope_ == 0) problem.bytes += count * static_cast<double>(kv_heads * d_) * width;
    if (rope_ != 0) problem.bytes += count * static_cast<double>(rotary_) * 4.0;
    return problem;
  }

 private:
  float number(const Random& random, int64_t i) const {
    if (b_.get("special") != 0) {
      // Rare enough that half of the rows are finite.
      const int64_t kind = random.stream(1).integer(i, 0, 399);
      if (kind >= 1 && kind <= 3) return special_value(kind);
      if (kind >= 4 && kind <= 8) return -60000.0f;
      if (kind >= 9 && kind <= 13) return -0.0f;
      if (kind >= 14 && kind <= 18) return 1e-30f;
    }
    return b_.is_normal() ? random.normal(i) : static_cast<float>(random.integer(i, -8, 8));
  }

  void fill_numbers(Operand& operand, int64_t gap) {
    const Random random = b_.random();
    const int64_t num_cols = operand.strides[0] - gap;
    if (operand.host.size_bytes() == 0) return;
    const int64_t num_rows = operand.shape[0];
    parallel_for(num_rows, num_cols, [&](int64_t r) {
      for (int64_t c = 0; c < num_cols; ++c) {
        store(operand.host.view(), r * operand.strides[0] + c, number(random, r * num_cols + c));
      }
    });
  }

  void add_heads(std::string_view name, Role role, int64_t heads) {
    const int64_t apart = d_ + b_.get("gap");
    fill_numbers(b_.strided(name, role, dtype_, {tokens_, heads, d_}, {heads * apart, apart, 1},
                            tokens_ * heads * apart),
                 0);
  }

  void add_indices(std::string_view name, bool are_long, const std::vector<int64_t>& values) {
    fill_vector(b_.dense(name, Role::input, are_long ? DType::i64 : DType::i32, {tokens_}),
                [&](int64_t i) { return static_cast<float>(values[static_cast<size_t>(i)]); });
  }

  // Integers: the table too holds small ones, so that rotated values are integers as well.
  void add_rope() {
    add_heads("q", Role::in_out, b_.get("heads"));
    add_indices("positions", b_.get("i64") != 0, places_.positions);
    int64_t num_positions = 1;
    for (const int64_t position : places_.positions) {
      num_positions = std::max(num_positions, position + 1);
    }
    Operand& table = b_.dense("table", Role::input, DType::f32, {num_positions, rotary_});
    if (table.host.size_bytes() == 0) return;
    if (b_.is_normal()) {
      const Tensor angles = make_rope_table(num_positions, rotary_, 500000.0);
      std::memcpy(table.host.view().data, angles.view().data,
                  static_cast<size_t>(angles.size_bytes()));
      return;
    }
    const Random random = b_.random();
    fill_rows(table, [&](int64_t r, int64_t c) {
      return static_cast<float>(random.integer(r * rotary_ + c, -3, 3));
    });
  }

  Builder& b_;
  DType dtype_;
  int64_t tokens_, d_, rope_, rotary_, page_;
  Places places_;
};

Problem make_append(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"tokens",   "seqs",     "heads",    "kv_heads",    "d",      "page", "rotary",
             "k_format", "v_format", "k_scales", "v_scales",    "rope",   "past", "skips",
             "i64",      "gap",      "special",  "heads_first", "inside", "shift"});
  return Maker(key, b).make();
}

bool append_fits(RowKey, const Shape&) { return true; }

using ShapeOptions = std::initializer_list<std::pair<std::string, int64_t>>;

using enum KvFormat;

Shape shape_of(int64_t tokens, int64_t seqs, int64_t d, PoolOption k, PoolOption v,
               ShapeOptions options) {
  Shape shape{{"tokens", tokens}, {"seqs", seqs}, {"heads", 4}, {"kv_heads", 2}, {"d", d}};
  append_options(shape, k, v);
  shape.insert(shape.end(), options.begin(), options.end());
  return shape;
}

std::vector<Shape> append_test_shapes() {
  std::vector<Shape> shapes{shape_of(0, 1, 64, {plain}, {plain}, {}),
                            shape_of(1, 1, 128, {plain}, {plain}, {{"rope", 1}}),
                            shape_of(1, 1, 1, {int8}, {int4_token}, {})};
  // Every format of keys, with another of values, in the combinations that models use.
  constexpr std::pair<PoolOption, PoolOption> kFormats[] = {
      {{plain}, {plain}},      {{e4m3}, {e4m3, 1}},
      {{e4m3, 1}, {e4m3, 2}},  {{e4m3, 2}, {e4m3}},
      {{e5m2}, {e5m2}},        {{int8}, {int8}},
      {{uint8}, {uint8}},      {{int4_token}, {int4_token}},
      {{int4}, {int4_token}},  {{int4}, {plain}},
      {{plain}, {int4_token}}, {{int8}, {plain}},
      {{int4_token}, {uint8}}};
  for (const auto& [k, v] : kFormats) {
    shapes.push_back(shape_of(37, 3, 128, k, v, {{"rope", 1}, {"skips", 1}}));
    shapes.push_back(shape_of(70, 2, 64, k, v, {{"rope", 2}, {"i64", 1}, {"heads_first", 1}}));
    shapes.push_back(shape_of(33, 1, 96, k, v, {{"special", 1}, {"inside", 1}, {"gap", 32}}));
    // Not whole vectors: an odd head size, one longer than a warp holds, rows with a scale between
    // them.
    shapes.push_back(shape_of(40, 2, 7, k, v, {{"rope", 1}, {"rotary", 6}}));
    shapes.push_back(shape_of(34, 1, 300, k, v, {{"rope", 2}, {"rotary", 20}, {"past", 30}}));
    shapes.push_back(shape_of(37, 2, 72, k, v, {{"rope", 1}}));
    shapes.push_back(shape_of(40, 2, 24, k, v, {{"inside", 2}, {"gap", 3}, {"shift", 4}}));
  }
  for (const PoolOption k : {PoolOption{plain}, PoolOption{int8}, PoolOption{int4}}) {
    shapes.push_back(shape_of(5, 5, 256, k, {int8}, {{"rope", 1}, {"rotary", 64}}));
    shapes.push_back(shape_of(5, 5, 80, k, {uint8}, {{"rope", 1}, {"rotary", 32}, {"i64", 1}}));
    shapes.push_back(shape_of(200, 3, 64, k, {plain}, {{"rope", 1}, {"page", 32}, {"skips", 1}}));
    shapes.push_back(shape_of(3000, 40, 64, k, {int4_token}, {{"rope", 1}}));
    shapes.push_back(shape_of(128, 128, 128, k, {plain}, {{"rope", 1}, {"past", 31}}));
  }
  // Blocks that take several rounds of rows, and several blocks per token.
  for (const int64_t tokens : {1100, 20}) {
    Shape llama = shape_of(tokens, 3, 128, {int8}, {plain}, {{"rope", 1}});
    shapes.push_back(with_value(with_value(llama, "heads", 32), "kv_heads", 8));
  }
  return shapes;
}

std::vector<Shape> workload_shapes() {
  std::vector<Shape> shapes;
  for (const PoolOption format : kPoolWorkloads) {
    for (const int64_t tokens : {1, 16, 128}) {
      Shape shape{{"tokens", tokens}, {"seqs", tokens}, {"heads", 32},
                  {"kv_heads", 8},    {"d", 128},       {"page", 16}};
      append_options(shape, format, format);
      shape.emplace_back("rope", 1);
      shape.emplace_back("past", 8);
      shapes.push_back(std::move(shape));
    }
  }
  return shapes;
}

}  // namespace

ProblemMaker kv_append_maker() {
  std::vector<RowKey> keys;
  for (const DType dtype : kFloats) keys.push_back({dtype, dtype});
  return {"kv_append", &make_append,         &append_fits,
          keys,        append_test_shapes(), {{"kv/append", workload_shapes()}},
          "kv"};
}

}  // namespace tessera::bench
