// Bytes and arithmetic of every operation.
// SPDX-License-Identifier: MIT
#include "ops/cost.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "core/text.h"

namespace tessera {
namespace {

double bytes_of(const TensorView& view) {
  if (view.rank == 0) return 0;
  return static_cast<double>(storage_bytes(view.dtype, view.num_elements()));
}
double bytes_of(const std::optional<TensorView>& view) { return view ? bytes_of(*view) : 0; }

double as_count(int64_t count) { return static_cast<double>(count); }
double elements_of(const TensorView& view) { return as_count(view.num_elements()); }

// "2x16x4096"
std::string shape_of(const TensorView& view) {
  std::string text;
  for (int d = 0; d < view.rank; ++d) text += concat(d == 0 ? "" : "x", view.size(d));
  return text;
}

// The values of an i32 or i64 vector, wherever it is.
std::vector<int64_t> values_of(const TensorView& vector, Stream stream) {
  const int64_t count = vector.num_elements();
  const Tensor host(vector.dtype, {count});
  const auto num_bytes = static_cast<size_t>(storage_bytes(vector.dtype, count));
  copy_bytes(host.view().data, cpu_device(), vector.data, vector.device, num_bytes, stream);
  if (!vector.device.is_cpu()) synchronize(vector.device, stream);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(vector.dtype == DType::i64 ? host.view().as<int64_t>()[i]
                                                : host.view().as<int32_t>()[i]);
  }
  return values;
}

double sum_of(const std::vector<int64_t>& values) {
  double sum = 0;
  for (const int64_t value : values) sum += as_count(value);
  return sum;
}

template <class Args>
OpCost norm_cost(const Args& args, double flops_each) {
  return {
      .read_bytes = bytes_of(args.x) + bytes_of(args.weight) + bytes_of(args.residual) +
                    bytes_of(args.static_scale),
      .written_bytes = bytes_of(args.out) + bytes_of(args.residual) + bytes_of(args.token_scale),
      .flops = flops_each * elements_of(args.x),
      .shape = shape_of(args.x)};
}

// Bytes of one token of all heads in pages of a cache, with its scales; of columns a 32nd. FP8's
// scales are a few numbers for the whole cache.
double token_bytes(const TensorView& pages, const TensorView& scales) {
  const KvFormatTraits& format = traits(kv_format(pages, scales));
  const int64_t heads = pages.size(2), d = pages.size(3);
  const double codes = as_count(heads * storage_bytes(pages.dtype, d));
  if (format.scales == KvScales::column) return codes + 4.0 * as_count(heads * d) / kKvGroup;
  return codes + as_count(2 * heads * format.scales_per_row());
}

double token_bytes(const PagedKv& kv) {
  return token_bytes(kv.k_pages, kv.k_scales) + token_bytes(kv.v_pages, kv.v_scales);
}

// How many of the keys [0, kv_len) the last q_len positions see under a mask, added up.
double num_pairs(const AttentionMask& mask, int64_t q_len, int64_t kv_len) {
  double pairs = 0;
  for (int64_t i = 0; i < q_len; ++i) {
    const int64_t position = i + kv_len - q_len;
    const int64_t first = mask.left < 0 ? 0 : std::max<int64_t>(0, position - mask.left);
    const int64_t end = mask.right < 0 ? kv_len : std::min(kv_len, position + mask.right + 1);
    pairs += as_count(std::max<int64_t>(0, end - first));
  }
  return pairs;
}

// The lengths of sequences, from where each starts.
std::vector<int64_t> lengths_between(std::vector<int64_t> starts) {
  for (size_t s = 0; s + 1 < starts.size(); ++s) starts[s] = starts[s + 1] - starts[s];
  if (!starts.empty()) starts.pop_back();
  return starts;
}

struct Lengths {
  std::vector<int64_t> q;
  std::vector<int64_t> kv;
};
Lengths lengths_of(const AttentionArgs& args, Stream stream) {
  const auto given = [](const TensorView& view) { return view.rank > 0; };
  Lengths lengths;
  if (given(args.q_starts)) {
    lengths.q = lengths_between(values_of(args.q_starts, stream));
  } else {
    lengths.q.assign(static_cast<size_t>(args.q.size(0)), args.q.size(1));
  }
  if (given(args.kv_lens)) {
    lengths.kv = values_of(args.kv_lens, stream);
  } else if (given(args.kv_starts)) {
    lengths.kv = lengths_between(values_of(args.kv_starts, stream));
  } else {
    lengths.kv.assign(lengths.q.size(), args.k.size(1));
  }
  return lengths;
}

// One to 16 new tokens of each sequence.
struct DecodeReads {
  double keys = 0;   // that some query sees
  double pairs = 0;  // of a query and a key it sees
};
DecodeReads decode_reads(const DecodeAttentionArgs& args, Stream stream) {
  const int64_t q_len = args.q.rank == 4 ? args.q.size(1) : 1;
  const AttentionMask mask{.left = args.window > 0 ? args.window - 1 : -1,
                           .right = args.tree.rank > 0 ? -1 : 0};
  DecodeReads reads;
  for (const int64_t length : values_of(args.kv.seq_lens, stream)) {
    if (length == 0) continue;
    const int64_t seen = args.window > 0 ? args.window + q_len - 1 : length;
    reads.keys += as_count(std::min(length, seen));
    reads.pairs += num_pairs(mask, q_len, length);
  }
  return reads;
}

// "16x512..1023": the sequences, and the shortest and longest of them.
std::string lengths_text(const std::vector<int64_t>& lengths) {
  if (lengths.empty()) return "0";
  const auto [least, most] = std::ranges::minmax_element(lengths);
  const std::string range = *least == *most ? concat(*most) : concat(*least, "..", *most);
  return concat(lengths.size(), "x", range);
}

}  // namespace

OpCost cost_of(const RmsNormArgs& args, Stream) { return norm_cost(args, 4); }

OpCost cost_of(const LayerNormArgs& args, Stream) {
  OpCost cost = norm_cost(args, 7);
  cost.read_bytes += bytes_of(args.bias);
  return cost;
}

// Only the rotated part of a head is touched, and only the table's rows that are asked for.
OpCost cost_of(const RopeArgs& args, Stream) {
  const int64_t tokens = args.q.size(0), rotary = args.table.size(1);
  const int64_t heads = args.q.size(1) + (args.k ? args.k->size(1) : 0);
  const double rotated = as_count(storage_bytes(args.q.dtype, tokens * heads * rotary));
  return {.read_bytes = rotated + bytes_of(args.positions) +
                        as_count(std::min(tokens, args.table.size(0)) * rotary * 4),
          .written_bytes = rotated,
          .flops = 3.0 * as_count(tokens * heads * rotary),
          .shape = concat(tokens, "x", heads, "x", rotary)};
}

OpCost cost_of(const ActivationArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x) + bytes_of(args.up),
          .written_bytes = bytes_of(args.out),
          .flops = (args.up ? 6.0 : 5.0) * elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const SoftmaxArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x) + bytes_of(args.mask),
          .written_bytes = bytes_of(args.out),
          .flops = 5.0 * elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const EmbeddingArgs& args, Stream) {
  const int64_t tokens = args.ids.num_elements(), hidden = args.table.size(1);
  const int64_t rows = std::min(tokens, args.table.size(0));  // the fewest: repeats are cached
  return {
      .read_bytes = as_count(storage_bytes(args.table.dtype, rows * hidden)) + bytes_of(args.ids),
      .written_bytes = bytes_of(args.out),
      .shape = concat(tokens, "x", hidden)};
}

OpCost cost_of(const CopyArgs& args, Stream) {
  double repeats = 1;  // along axes that are broadcast
  for (int d = 0; d < args.x.rank; ++d) {
    if (args.x.stride(d) == 0) repeats *= as_count(std::max<int64_t>(1, args.x.size(d)));
  }
  return {.read_bytes = bytes_of(args.x) / repeats,
          .written_bytes = bytes_of(args.out),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const QuantizeArgs& args, Stream) {
  const double scales = bytes_of(args.scale) + bytes_of(args.zero_point);
  const bool reads_scales = args.mode == ScaleMode::fixed;
  return {.read_bytes = bytes_of(args.x) + (reads_scales ? scales : 0),
          .written_bytes = bytes_of(args.out) + (reads_scales ? 0 : scales),
          .flops = 3.0 * elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const DequantizeArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x) + bytes_of(args.scale) + bytes_of(args.zero_point) +
                        bytes_of(args.table),
          .written_bytes = bytes_of(args.out),
          .flops = 2.0 * elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const ReduceArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x),
          .written_bytes = bytes_of(args.out),
          .flops = elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const ArgmaxArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x),
          .written_bytes = bytes_of(args.out),
          .flops = elements_of(args.x),
          .shape = shape_of(args.x)};
}

// Lists of tokens seen count as if they were full: their lengths are not read.
OpCost cost_of(const SampleArgs& args, Stream) {
  OpCost cost{.read_bytes = bytes_of(args.logits),
              .written_bytes = bytes_of(args.tokens),
              .flops = elements_of(args.logits),
              .shape = shape_of(args.logits)};
  for (const auto* setting :
       {&args.temperature, &args.top_k, &args.typical_p, &args.top_p, &args.min_p, &args.seeds,
        &args.sequences, &args.positions, &args.bias_starts, &args.bias_tokens, &args.bias_values,
        &args.slots, &args.repetition, &args.presence, &args.frequency, &args.masks,
        &args.mask_rows}) {
    cost.read_bytes += bytes_of(*setting);
  }
  if (!args.slots) return cost;
  for (const auto* list : {&args.seen_tokens, &args.seen_counts, &args.num_seen}) {
    if (!*list || (*list)->size(0) == 0) continue;
    const double of_rows =
        bytes_of(*list) / as_count((*list)->size(0)) * as_count(args.logits.size(0));
    cost.read_bytes += of_rows;
    cost.written_bytes += of_rows;
  }
  return cost;
}

OpCost cost_of(const TokenLogprobsArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.logits) + bytes_of(args.tokens),
          .written_bytes =
              bytes_of(args.logprobs) + bytes_of(args.top_tokens) + bytes_of(args.top_logprobs),
          .flops = 2.0 * elements_of(args.logits),
          .shape = shape_of(args.logits)};
}

OpCost cost_of(const ScaleArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.x) + bytes_of(args.residual),
          .written_bytes = bytes_of(args.out),
          .flops = 2.0 * elements_of(args.x),
          .shape = shape_of(args.x)};
}

OpCost cost_of(const GemmArgs& args, Stream) {
  const int64_t m = args.a.size(-2), n = args.b.n(), k = args.b.k();
  const int64_t batch = args.a.rank == 3 ? args.a.size(0) : 1;
  const std::string matrices = batch == 1 ? std::string() : concat(batch, "x");
  return {.read_bytes = bytes_of(args.a) + bytes_of(args.b.values) + bytes_of(args.b.scale) +
                        bytes_of(args.b.zero_point) + bytes_of(args.b.table) + bytes_of(args.bias) +
                        bytes_of(args.residual) + bytes_of(args.out_scale) +
                        bytes_of(args.a_scale) + bytes_of(args.a_zero_point) +
                        bytes_of(args.b.row_sums),
          .written_bytes = bytes_of(args.out),
          .flops = 2.0 * as_count(batch * m * n) * as_count(k),
          .shape = concat(matrices, m, "x", n, "x", k, args.is_gated ? " gated" : "",
                          args.residual ? " +residual" : "")};
}

// What passes between the two is not counted.
OpCost cost_of(const NormGemmArgs& args, Stream stream) {
  OpCost cost = cost_of(args.gemm, stream);
  const RmsNormArgs& norm = args.norm;
  cost.read_bytes += bytes_of(norm.x) + bytes_of(norm.weight) - bytes_of(args.gemm.a);
  if (norm.token_scale) cost.read_bytes -= bytes_of(norm.token_scale);
  cost.flops += cost_of(norm, stream).flops;
  cost.shape += " normed";
  return cost;
}

OpCost cost_of(const Gemm24Args& args, Stream) {
  const int64_t m = args.a.size(0), n = args.values.size(0), k = args.a.size(1);
  return {.read_bytes = bytes_of(args.a) + bytes_of(args.values) + bytes_of(args.meta),
          .written_bytes = bytes_of(args.out),
          .flops = as_count(m * n) * as_count(k),
          .shape = concat(m, "x", n, "x", k)};
}

OpCost cost_of(const AttentionArgs& args, Stream stream) {
  const Lengths lengths = lengths_of(args, stream);
  double pairs = 0;
  for (size_t s = 0; s < lengths.q.size(); ++s) {
    pairs += num_pairs(args.mask, lengths.q[s], lengths.kv[s]);
  }
  const auto keys = static_cast<int64_t>(sum_of(lengths.kv));
  const int64_t kv_heads = args.k.size(-2), d = args.q.size(-1), dv = args.v.size(-1);
  return {.read_bytes =
              bytes_of(args.q) + as_count(storage_bytes(args.k.dtype, keys * kv_heads * (d + dv))),
          .written_bytes = bytes_of(args.out),
          .flops = 2.0 * pairs * as_count(args.q.size(-2) * (d + dv)),
          .shape = concat(lengths_text(lengths.q), " over ", lengths_text(lengths.kv))};
}

OpCost cost_of(const DecodeAttentionArgs& args, Stream stream) {
  const DecodeReads reads = decode_reads(args, stream);
  return {.read_bytes = bytes_of(args.q) + reads.keys * token_bytes(args.kv),
          .written_bytes = bytes_of(args.out),
          .flops = 4.0 * reads.pairs * as_count(args.q.size(-2) * args.q.size(-1)),
          .shape = lengths_text(values_of(args.kv.seq_lens, stream))};
}

OpCost cost_of(const MergeAttentionArgs& args, Stream) {
  return {.read_bytes = bytes_of(args.parts) + bytes_of(args.part_lses),
          .written_bytes = bytes_of(args.out) + bytes_of(args.lse),
          .flops = 2.0 * elements_of(args.parts),
          .shape = shape_of(args.parts)};
}

// The shared keys are read once for all sequences.
OpCost cost_of(const CascadeAttentionArgs& args, Stream stream) {
  OpCost cost = cost_of(args.own, stream);
  const double shared = sum_of(values_of(args.piece_lens, stream));
  const int64_t tokens = args.own.q.num_elements() / args.own.q.size(-1) / args.own.q.size(-2);
  cost.read_bytes += shared * (token_bytes(args.k_pages, {}) + token_bytes(args.v_pages, {}));
  cost.flops += 4.0 * shared * as_count(tokens * args.own.q.size(-2) * args.own.q.size(-1));
  cost.shape += concat(" after ", static_cast<int64_t>(shared));
  return cost;
}

// k is rotated in place, so that it is read and written as q is.
OpCost cost_of(const KvAppendArgs& args, Stream) {
  const int64_t tokens = args.k.size(0), kv_heads = args.k.size(1), d = args.k.size(2);
  const double pages = as_count(tokens) * (token_bytes(args.k_pages, args.k_scales) +
                                           token_bytes(args.v_pages, args.v_scales));
  OpCost cost{.read_bytes = bytes_of(args.v) + bytes_of(args.slots),
              .written_bytes = pages,
              .shape = concat(tokens, "x", kv_heads, "x", d)};
  if (!args.rope) {
    cost.read_bytes += bytes_of(args.k);
    return cost;
  }
  const int64_t rotary = args.rope->table.size(1);
  const int64_t rotated = tokens * (args.rope->q.size(1) + kv_heads) * rotary;
  const double rotated_bytes = as_count(storage_bytes(args.k.dtype, rotated));
  cost.read_bytes += rotated_bytes + as_count(tokens * rotary * 4);
  cost.written_bytes += rotated_bytes;
  cost.flops = 3.0 * as_count(rotated);
  return cost;
}

// q and k need not be written back.
OpCost cost_of(const AppendAttentionArgs& args, Stream stream) {
  OpCost cost = cost_of(args.decode, stream);
  const KvAppendArgs& append = args.append;
  const int64_t tokens = append.k.size(0);
  cost.read_bytes += bytes_of(append.k) + bytes_of(append.v);
  cost.written_bytes += as_count(tokens) * token_bytes(args.decode.kv);
  if (!append.rope) return cost;
  const int64_t rotary = append.rope->table.size(1);
  cost.read_bytes += as_count(tokens * rotary * 4);
  cost.flops += 3.0 * as_count(tokens * (args.decode.q.size(1) + append.k.size(1)) * rotary);
  return cost;
}

OpCost cost_of(const KvGatherArgs& args, Stream stream) {
  const std::vector<int64_t> lengths = values_of(args.kv.seq_lens, stream);
  const double tokens = sum_of(lengths);
  const int64_t row = args.k.size(1) * args.k.size(2);
  return {.read_bytes = tokens * token_bytes(args.kv),
          .written_bytes = 2.0 * tokens * as_count(storage_bytes(args.k.dtype, row)),
          .shape = lengths_text(lengths)};
}

OpCost cost_of(const KvCopyPagesArgs& args, Stream) {
  const double tokens = as_count(args.sources.num_elements() * args.k_pages.size(1));
  const double bytes = tokens * (token_bytes(args.k_pages, args.k_scales) +
                                 token_bytes(args.v_pages, args.v_scales));
  return {.read_bytes = bytes,
          .written_bytes = bytes,
          .shape = concat(args.sources.num_elements(), " pages")};
}

}  // namespace tessera
