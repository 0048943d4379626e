// A few queries of a large problem, as a small one over the same keys.
// SPDX-License-Identifier: MIT
#include "bench/problems/attention_sample.h"

#include <algorithm>
#include <cstring>

#include "bench/problems/attention_data.h"
#include "bench/problems/builder.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/ops/attention.h"

namespace tessera::bench {
namespace {

constexpr double kMostFlops = 1e10;  // of a sample
constexpr int64_t kMostQueries = 64;
constexpr int64_t kLeastQueries = 8;

struct Query {
  int64_t sequence, idx;
};

std::vector<Query> draw_queries(const AttentionOptions& o, uint64_t seed) {
  const double each = 2.0 * static_cast<double>(o.kv_len * o.heads * (o.d + o.dv));
  const int64_t count = std::clamp(static_cast<int64_t>(kMostFlops / std::max(each, 1.0)),
                                   kLeastQueries, kMostQueries);
  const Random random{seed};
  std::vector<Query> queries;
  for (int64_t i = 0; i < count; ++i) {
    if (i == 0) {
      queries.push_back({0, 0});
    } else if (i == 1) {
      queries.push_back({o.batch - 1, o.q_len - 1});
    } else {
      queries.push_back(
          {random.integer(2 * i, 0, o.batch - 1), random.integer(2 * i + 1, 0, o.q_len - 1)});
    }
  }
  return queries;
}

Operand contiguous(std::string_view name, Role role, DType dtype, std::vector<int64_t> shape) {
  Operand operand;
  operand.name = name;
  operand.role = role;
  operand.strides.resize(shape.size());
  int64_t count = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    operand.strides[d] = count;
    count *= shape[d];
  }
  operand.shape = std::move(shape);
  operand.host = Tensor(dtype, {count});
  return operand;
}

class Sampler {
 public:
  Sampler(const AttentionOptions& o, const AttentionLayout& layout, const Problem& whole)
      : o_(o), layout_(layout), whole_(whole), queries_(draw_queries(o, whole.seed)) {}

  Sample take() {
    Problem& part = sample_.part;
    part.shape = whole_.shape;
    part.fill = whole_.fill;
    part.seed = whole_.seed;
    add_queries("q", Role::input, o_.d);
    copy_whole("k");
    copy_whole("v");
    add_queries(o_.is_in_place ? "q" : "out", Role::output, o_.dv);
    add_tables();
    add_intervals();
    if (o_.has_lse) add_lse();
    if (o_.has_sinks) copy_whole("sinks");
    for (const std::string_view name : {"q_scale", "k_scale", "v_scale"}) {
      if (o_.has_scales) add_scale(name);
    }
    part.call = [o = o_](std::span<const TensorView> views, const Context& ctx) {
      const AttentionScalars scalars = attention_scalars(o);
      AttentionArgs args{.q = views[0], .k = views[1], .v = views[2], .out = views[3]};
      args.k_page_table = views[4];
      args.v_page_table = views[5];
      args.kv_lens = views[6];
      args.mask.intervals = views[7];
      size_t next = 8;
      if (o.has_lse) args.lse = views[next++];
      if (o.has_sinks) args.sinks = views[next++];
      if (o.has_scales) {
        args.q_scale = views[next];
        args.k_scale = views[next + 1];
        args.v_scale = views[next + 2];
      }
      args.scale = scalars.scale;
      args.softcap = scalars.softcap;
      attention_prefill(args, ctx);
    };
    return std::move(sample_);
  }

 private:
  size_t find(std::string_view name) const {
    const auto it = std::ranges::find(whole_.operands, name, &Operand::name);
    expects(it != whole_.operands.end(), "sample_attention: an operand is missing");
    return static_cast<size_t>(it - whole_.operands.begin());
  }
  int64_t num_queries() const { return static_cast<int64_t>(queries_.size()); }
  Operand& push(Operand operand) { return sample_.part.operands.emplace_back(std::move(operand)); }

  // One query per sequence: inputs are copied, outputs recorded as runs of elements.
  void add_queries(std::string_view name, Role role, int64_t cols) {
    const size_t from_operand = find(name);
    const Operand& from = whole_.operands[from_operand];
    const DType dtype = from.host.view().dtype;
    const size_t to_operand = sample_.part.operands.size();
    Operand& to = push(contiguous(name, role, dtype, {num_queries(), 1, o_.heads, cols}));
    to.bound = from.bound;
    int64_t place = 0;
    for (const Query& query : queries_) {
      for (int64_t h = 0; h < o_.heads; ++h, place += cols) {
        const int64_t at = from.offset + query.sequence * from.strides[0] +
                           query.idx * from.strides[1] + h * from.strides[2];
        if (role == Role::output) {
          sample_.runs.push_back({from_operand, at, to_operand, place, cols});
          continue;
        }
        std::memcpy(to.host.view().as<char>() + storage_bytes(dtype, place),
                    from.host.view().as<char>() + storage_bytes(dtype, at),
                    static_cast<size_t>(storage_bytes(dtype, cols)));
      }
    }
  }

  void copy_whole(std::string_view name) {
    const Operand& from = whole_.operands[find(name)];
    Operand to;
    to.name = from.name;
    to.role = Role::input;
    to.host = from.host.to(cpu_device());
    to.shape = from.shape;
    to.strides = from.strides;
    to.offset = from.offset;
    push(std::move(to));
  }

  // Of k and of v, and the lengths.
  void add_tables() {
    const int64_t num_cols = o_.is_paged() ? o_.max_pages() : 1;
    for (const bool is_v : {false, true}) {
      Operand& table = push(contiguous(is_v ? "v_page_table" : "k_page_table", Role::input,
                                       DType::i32, {num_queries(), num_cols}));
      int32_t* to = table.host.view().as<int32_t>();
      for (const Query& query : queries_) {
        for (int64_t page = 0; page < num_cols; ++page) {
          const int64_t number = o_.is_paged()
                                     ? layout_.page_of(query.sequence, page * o_.page, is_v)
                                     : query.sequence;
          *to++ = static_cast<int32_t>(number);
        }
      }
    }
    Operand& lens = push(contiguous("kv_lens", Role::input, DType::i32, {num_queries()}));
    int32_t* to = lens.host.view().as<int32_t>();
    for (const Query& query : queries_) {
      *to++ = static_cast<int32_t>(layout_.sequences()[static_cast<size_t>(query.sequence)].kv_len);
    }
  }

  void add_intervals() {
    Operand& intervals =
        push(contiguous("intervals", Role::input, DType::i32, {num_queries(), 1, 2, 2}));
    int32_t* to = intervals.host.view().as<int32_t>();
    for (const Query& query : queries_) {
      const auto& sequence = layout_.sequences()[static_cast<size_t>(query.sequence)];
      for (const KeyRange& range : layout_.seen_by(sequence, query.idx)) {
        *to++ = static_cast<int32_t>(range.begin);
        *to++ = static_cast<int32_t>(range.end);
      }
    }
  }

  void add_lse() {
    const size_t from_operand = find("lse");
    const Operand& from = whole_.operands[from_operand];
    const size_t to_operand = sample_.part.operands.size();
    push(contiguous("lse", Role::output, DType::f32, {num_queries(), o_.heads, 1})).bound =
        from.bound;
    int64_t place = 0;
    for (const Query& query : queries_) {
      for (int64_t h = 0; h < o_.heads; ++h, ++place) {
        const int64_t at = from.offset + query.sequence * from.strides[0] + h * from.strides[1] +
                           query.idx * from.strides[2];
        sample_.runs.push_back({from_operand, at, to_operand, place, 1});
      }
    }
  }

  void add_scale(std::string_view name) {
    const Operand& from = whole_.operands[find(name)];
    Operand& scale = push(contiguous(name, Role::input, DType::f32, {num_queries(), o_.kv_heads}));
    float* to = scale.host.view().as<float>();
    for (const Query& query : queries_) {
      const float* row = from.host.view().as<float>() + from.offset + query.sequence * o_.kv_heads;
      to = std::copy_n(row, o_.kv_heads, to);
    }
  }

  const AttentionOptions& o_;
  const AttentionLayout& layout_;
  const Problem& whole_;
  std::vector<Query> queries_;
  Sample sample_;
};

}  // namespace

bool can_sample(const AttentionOptions& o) {
  const bool is_empty = o.batch == 0 || o.q_len == 0 || o.kv_len == 0;
  return !o.is_ragged && !o.has_alibi && !o.has_dropout && !is_empty;
}

Sample sample_attention(const AttentionOptions& o, const AttentionLayout& layout,
                        const Problem& whole) {
  return Sampler(o, layout, whole).take();
}

}  // namespace tessera::bench
