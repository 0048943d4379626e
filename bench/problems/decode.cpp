// Problems for attention of the newest tokens over a KV cache.
// SPDX-License-Identifier: MIT
//
// Sizes: batch, q_len (absent: q has no such axis, and one token), kv_len, heads, kv_heads (absent:
// heads), d.
// Options: k_format and v_format (absent: plain, and what goes with k_format), head_scales (of e4m3
// and e5m2: 0 none, 1 one, 2 one per head), tail_dtype (of int4; absent: that of q), tails (of the
// pool of tails), page (tokens per page; absent: no pages), pages (of the pool;
// absent: some more than are used, and sequences are then not rows of their own), shared (pages at
// the front that all sequences share), repeats (every second page is the one before it), lens
// (lengths vary, one is 0), window, softcap, sinks, alibi, lse, tree, blocks, keys (the most of a
// list), strided (1: heads before tokens, 2: 64 elements between tokens, 3: 2 elements), in_place
// (out is q), longest and says_shared (the arguments longest and shares_pages are set).
#include "bench/problems/decode_data.h"
#include "bench/problems/decode_operands.h"
#include "bench/problems/decode_shapes.h"
#include "bench/problems/makers.h"
#include "tessera/ops/attention.h"

namespace tessera::bench {
namespace {

// Shapes with more bytes of keys and values in 16 bits are workloads, which are defined for bf16.
constexpr int64_t kMostTested = int64_t{64} << 20;
constexpr std::string_view kDecodeOp = "attention_decode";

// Bytes of one token and head.
double row_bytes(KvFormat format, RowKey key, const DecodeOptions& o) {
  const auto elements = static_cast<double>(storage_bytes(pages_dtype(format, key.in), o.d));
  const bool is_by_column = traits(format).scales == KvScales::column;
  return elements + (is_by_column ? 4.0 * static_cast<double>(o.d) / kKvGroup
                                  : static_cast<double>(2 * traits(format).scales_per_row()));
}

}  // namespace

double decode_bytes(RowKey key, const DecodeOptions& o, double num_keys) {
  const double queries =
      2.0 * static_cast<double>(storage_bytes(key.in, o.batch * o.q_len * o.heads * o.d));
  return queries + num_keys * static_cast<double>(o.kv_heads) *
                       (row_bytes(o.k, key, o) + row_bytes(o.v, key, o));
}

Sample sample_sequences(std::string_view op, RowKey key, const Problem& whole) {
  const int64_t batch = value_of(whole.shape, "batch", 1);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < std::min(batch, kSampledSequences); ++i) {
    rows.push_back(i * (batch - 1) / std::max<int64_t>(1, kSampledSequences - 1));
  }
  Sample sample{.part = take_rows(*find_maker(op), key, whole, rows), .runs = {}};
  for (size_t i = 0; i < whole.operands.size(); ++i) {
    const Operand& operand = whole.operands[i];
    if (operand.role == Role::input || operand.role == Role::scratch) continue;
    for (size_t r = 0; r < rows.size(); ++r) {
      const int64_t count = operand.strides[0];
      sample.runs.push_back({i, operand.offset + rows[r] * count, i,
                             operand.offset + static_cast<int64_t>(r) * count, count});
    }
  }
  return sample;
}

namespace {

Problem make_decode(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(
      shape, fill, seed,
      {"batch",       "q_len",      "kv_len",  "heads",    "kv_heads", "d",       "k_format",
       "v_format",    "tail_dtype", "tails",   "page",     "pages",    "shared",  "lens",
       "head_scales", "window",     "sinks",   "alibi",    "lse",      "softcap", "tree",
       "blocks",      "keys",       "strided", "in_place", "longest",  "repeats", "says_shared"});
  const DecodeOptions o = decode_options(shape, fill);
  const DecodeLayout layout(o, seed);
  const DecodeSlots slots = add_decode_operands(key, b, o, layout);
  const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
    attention_decode(decode_args(o, slots, views), ctx);
  };
  const double flops = 4.0 * layout.num_pairs() * static_cast<double>(o.heads * o.d);
  // The problem's rows are sequences if each lies by itself or has its pages in a pool of fixed
  // size.
  const bool has_rows = !o.is_paged() || o.pages > 0;
  Problem problem = b.finish(call, flops, has_rows ? "batch" : "");
  problem.bytes = decode_bytes(key, o, layout.num_read());
  problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
    return supports(decode_args(o, slots, views), ctx);
  };
  if (has_rows && o.batch > kSampledSequences) {
    problem.sample = [=](const Problem& whole) { return sample_sequences(kDecodeOp, key, whole); };
  }
  return problem;
}

bool decode_fits(RowKey key, const Shape& shape) {
  const int64_t heads = value_of(shape, "kv_heads", value_of(shape, "heads"));
  const int64_t num_elements =
      value_of(shape, "batch", 1) * value_of(shape, "kv_len") * heads * value_of(shape, "d");
  return 4 * num_elements < kMostTested || key.in == DType::bf16;
}

}  // namespace

ProblemMaker attention_decode_maker() {
  const std::vector<RowKey> keys{
      {DType::bf16, DType::bf16}, {DType::f16, DType::f16}, {DType::f32, DType::f32}};
  return {kDecodeOp,          &make_decode, &decode_fits, keys, decode_test_shapes(),
          decode_workloads(), "attention"};
}

}  // namespace tessera::bench
