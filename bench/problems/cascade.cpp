// Problems for attention_cascade: those of decode attention whose first pages are shared. The CPU
// computes them without a cascade.
// SPDX-License-Identifier: MIT
//
// Sizes and options are a subset of those of decode.cpp, and pieces: the parts of the shared pages.
// With `lens`, every sequence still has all shared keys.
#include "bench/problems/decode_data.h"
#include "bench/problems/decode_operands.h"
#include "bench/problems/makers.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr std::string_view kCascadeOp = "attention_cascade";

struct CascadeOptions {
  DecodeOptions decode;
  int64_t pieces;

  int64_t shared_keys() const { return decode.shared * decode.page; }
  int64_t piece_pages() const { return decode.shared / pieces; }
  int64_t piece_keys() const { return piece_pages() * decode.page; }
};

CascadeOptions cascade_options(const Shape& shape, Fill fill) {
  CascadeOptions o{decode_options(shape, fill), value_of(shape, "pieces", 1)};
  if (o.decode.shared < 1 || o.decode.shared % o.pieces != 0) {
    fail(concat("problem: shared is ", o.decode.shared, " pages, which ", o.pieces,
                " pieces must divide evenly"));
  }
  // A single token without keys of its own sees the shared ones; several would not see them all.
  o.decode.least = o.shared_keys() + (o.decode.q_len > 1 ? o.decode.q_len : 0);
  // Parts are rounded, so several keys of equal weight are exact only within a part.
  o.decode.chooses_one_key = true;
  return o;
}

// After the operands of decode.
struct CascadeViews {
  TensorView own_lens, piece_lens, parts, part_lses;
};

void add_cascade_operands(RowKey key, Builder& b, const CascadeOptions& o,
                          const DecodeLayout& layout) {
  const DecodeOptions& d = o.decode;
  Operand& own_lens = b.dense("own_lens", Role::input, DType::i32, {d.batch});
  own_lens.is_per_row = true;
  fill_vector(own_lens,
              [&](int64_t s) { return static_cast<float>(layout.length(s) - o.shared_keys()); });
  fill_vector(b.dense("piece_lens", Role::input, DType::i32, {o.pieces}),
              [&](int64_t) { return static_cast<float>(o.piece_keys()); });
  b.dense("parts", Role::scratch, key.in, {o.pieces + 1, d.batch * d.q_len, d.heads, d.d});
  b.dense("part_lses", Role::scratch, DType::f32, {o.pieces + 1, d.batch * d.q_len, d.heads});
}

// The same call without the shared pages in the table.
CascadeAttentionArgs cascade_args(const CascadeOptions& o, const DecodeAttentionArgs& whole,
                                  const CascadeViews& views) {
  CascadeAttentionArgs args{};
  args.own = whole;
  args.own.kv.seq_lens = views.own_lens;
  args.own.longest = whole.longest > 0 ? whole.longest - o.shared_keys() : 0;
  TensorView& table = args.own.kv.page_table;
  table.data = table.as<int32_t>() + o.decode.shared;
  table.shape[1] -= o.decode.shared;
  args.k_pages = whole.kv.k_pages;
  args.v_pages = whole.kv.v_pages;
  args.page_table = whole.kv.page_table;  // the first sequence's row, cut into pieces
  args.page_table.shape = {o.pieces, o.piece_pages()};
  args.page_table.strides = {o.piece_pages(), 1};
  args.piece_lens = views.piece_lens;
  args.parts = views.parts;
  args.part_lses = views.part_lses;
  return args;
}

// One rounding per part, besides those of decode; |v| is below 5.
Bound cascade_bound(RowKey key, const DecodeOptions& o) {
  Bound bound = decode_bound(key, o);
  if (o.is_normal) bound.absolute += 5 * (2 * unit_roundoff(key.in) + 0x1p-18);
  return bound;
}

Problem make_cascade(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(
      shape, fill, seed,
      {"batch", "q_len", "kv_len", "heads", "kv_heads", "d", "page", "pages", "shared", "pieces",
       "lens", "sinks", "lse", "softcap", "tree", "strided", "in_place", "longest"});
  const CascadeOptions o = cascade_options(shape, fill);
  const DecodeLayout layout(o.decode, seed);
  const DecodeSlots slots = add_decode_operands(key, b, o.decode, layout);
  const size_t num_decode = slots.size();
  add_cascade_operands(key, b, o, layout);
  const auto args_of = [=](std::span<const TensorView> v) {
    return cascade_args(o, decode_args(o.decode, slots, v),
                        {v[num_decode], v[num_decode + 1], v[num_decode + 2], v[num_decode + 3]});
  };
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    if (views[0].device.is_cpu()) return attention_decode(decode_args(o.decode, slots, views), ctx);
    attention_cascade(args_of(views), ctx);
  };
  const double flops = 4.0 * layout.num_pairs() * static_cast<double>(o.decode.heads * o.decode.d);
  const bool has_rows = o.decode.pages > 0;
  Problem problem = b.finish(call, flops, has_rows ? "batch" : "");
  for (Operand& operand : problem.operands) {
    if (operand.name == "out" || (operand.name == "q" && o.decode.is_in_place)) {
      operand.bound = cascade_bound(key, o.decode);
    }
  }
  const auto num_repeated = static_cast<double>((o.decode.batch - 1) * o.shared_keys());
  problem.bytes = decode_bytes(key, o.decode, layout.num_read() - num_repeated);
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(args_of(views), ctx);
  };
  if (has_rows && o.decode.batch > kSampledSequences) {
    problem.sample = [=](const Problem& whole) { return sample_sequences(kCascadeOp, key, whole); };
  }
  return problem;
}

// Workloads are defined for bf16.
bool cascade_fits(RowKey key, const Shape& shape) {
  return value_of(shape, "kv_len") < 8192 || key.in == DType::bf16;
}

std::vector<Shape> cascade_test_shapes() {
  return {
      {{"batch", 1}, {"kv_len", 17}, {"heads", 2}, {"d", 64}, {"page", 16}, {"shared", 1}},
      {{"batch", 7},
       {"kv_len", 200},
       {"heads", 8},
       {"kv_heads", 2},
       {"d", 128},
       {"page", 16},
       {"pages", 120},
       {"shared", 4},
       {"pieces", 2},
       {"lens", 1},
       {"lse", 1}},
      {{"batch", 5},
       {"q_len", 3},
       {"kv_len", 150},
       {"heads", 4},
       {"kv_heads", 1},
       {"d", 64},
       {"page", 16},
       {"pages", 60},
       {"shared", 3},
       {"pieces", 3},
       {"lens", 1},
       {"lse", 1}},
      {{"batch", 70},
       {"kv_len", 300},
       {"heads", 8},
       {"kv_heads", 2},
       {"d", 128},
       {"page", 64},
       {"pages", 150},
       {"shared", 4},
       {"pieces", 4},
       {"softcap", 1}},
      {{"batch", 3},
       {"kv_len", 100},
       {"heads", 4},
       {"kv_heads", 2},
       {"d", 256},
       {"page", 16},
       {"shared", 4},
       {"sinks", 1},
       {"lse", 1},
       {"in_place", 1}},
      {{"batch", 3},
       {"q_len", 4},
       {"kv_len", 100},
       {"heads", 4},
       {"kv_heads", 2},
       {"d", 96},
       {"page", 32},
       {"shared", 2},
       {"tree", 1},
       {"lens", 1},
       {"longest", 1}},
      {{"batch", 40},
       {"kv_len", 2200},
       {"heads", 4},
       {"kv_heads", 2},
       {"d", 64},
       {"page", 64},
       {"shared", 32},
       {"pieces", 2},
       {"lens", 1},
       {"strided", 1}},
  };
}

}  // namespace

ProblemMaker attention_cascade_maker() {
  const std::vector<RowKey> keys{
      {DType::bf16, DType::bf16}, {DType::f16, DType::f16}, {DType::f32, DType::f32}};
  const Shape llama{{"batch", 64}, {"kv_len", 8704}, {"heads", 32},  {"kv_heads", 8},
                    {"d", 128},    {"page", 64},     {"pages", 700}, {"shared", 128},
                    {"pieces", 8}, {"longest", 1}};
  const Shape shorter{{"batch", 16}, {"kv_len", 4608}, {"heads", 32},  {"kv_heads", 8},
                      {"d", 128},    {"page", 64},     {"pages", 200}, {"shared", 64},
                      {"pieces", 4}, {"longest", 1}};
  return {kCascadeOp,
          &make_cascade,
          &cascade_fits,
          keys,
          cascade_test_shapes(),
          {{"decode/cascade",
            {with_value(llama, "pieces", 4), llama, with_value(llama, "pieces", 16), shorter}}},
          "attention"};
}

}  // namespace tessera::bench
