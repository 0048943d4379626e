// Problems for attention_append: those of decode attention whose newest token is not in the cache
// yet.
// SPDX-License-Identifier: MIT
//
// Sizes and options are a subset of those of decode.cpp, and rope (1 half_split, 2 interleaved;
// absent: none), rotary (absent: d), i64 (slots and positions), settled (the argument is_settled).
// The row of the newest token is poisoned in the pages. With integers the rotation is by angle 0,
// so that what makes decode attention exact stays as it is.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/problems/decode_data.h"
#include "bench/problems/decode_operands.h"
#include "bench/problems/makers.h"
#include "tessera/ops/attention_append.h"

namespace tessera::bench {
namespace {

class AppendAttentionMaker {
 public:
  AppendAttentionMaker(RowKey key, Builder& b, const DecodeOptions& o, const DecodeLayout& layout)
      : key_(key), b_(b), o_(o), layout_(layout), slots_(add_decode_operands(key, b, o, layout)) {}

  Problem make() {
    const size_t at = slots_.size();
    const int64_t rope = b_.get("rope"), rotary = b_.get("rotary", o_.d);
    for (const std::string_view name : {"k", "v"}) {
      b_.dense(name, Role::input, key_.in, {o_.batch, o_.kv_heads, o_.d});
    }
    add_indices("slots", [&](int64_t s) { return slot_of(s); });
    if (rope != 0) {
      add_indices("positions",
                  [&](int64_t s) { return std::max<int64_t>(0, layout_.length(s) - 1); });
      add_table(rotary);
    }
    const auto args_of = [o = o_, slots = slots_, at, rope,
                          is_settled = b_.get("settled") != 0](std::span<const TensorView> v) {
      AppendAttentionArgs args{
          .append = {}, .decode = decode_args(o, slots, v), .is_settled = is_settled};
      args.append = {.k = v[at],
                     .v = v[at + 1],
                     .slots = v[at + 2],
                     .k_pages = args.decode.kv.k_pages,
                     .v_pages = args.decode.kv.v_pages};
      if (rope != 0) {
        args.append.rope =
            KvRope{.q = args.decode.q,
                   .positions = v[at + 3],
                   .table = v[at + 4],
                   .style = rope == 2 ? RopeStyle::interleaved : RopeStyle::half_split};
      }
      return args;
    };
    const auto call = [=](std::span<const TensorView> views, const Context& ctx) {
      attention_append(args_of(views), ctx);
    };
    const auto tokens = static_cast<double>(o_.batch);
    const double rotated =
        rope != 0 ? tokens * static_cast<double>((o_.heads + o_.kv_heads) * rotary) : 0;
    const double flops =
        4.0 * layout_.num_pairs() * static_cast<double>(o_.heads * o_.d) + 3.0 * rotated;
    Problem problem = b_.finish(call, flops, "");
    const double token_bytes =
        2.0 * static_cast<double>(storage_bytes(key_.in, o_.batch * o_.kv_heads * o_.d));
    problem.bytes = decode_bytes(key_, o_, layout_.num_read()) + 2.0 * token_bytes +
                    (rope != 0 ? tokens * static_cast<double>(rotary) * 4.0 : 0.0);
    problem.is_supported = [=](std::span<const TensorView> views, const Context& ctx) {
      return supports(args_of(views), ctx);
    };
    move_newest(find(problem, "k_pages"), problem.operands[at]);
    move_newest(find(problem, "v_pages"), problem.operands[at + 1]);
    if (rope != 0) {  // rotated, or not
      problem.operands[at].role = Role::scratch;
      if (!o_.is_in_place) find(problem, "q").role = Role::scratch;
    }
    return problem;
  }

 private:
  static Operand& find(Problem& problem, std::string_view name) {
    return *std::ranges::find(problem.operands, name, &Operand::name);
  }

  int64_t slot_of(int64_t s) const {
    const int64_t last = layout_.length(s) - 1;
    if (last < 0) return -1;
    const int64_t page = o_.is_paged() ? layout_.page_of(s, last) : s;
    return page * o_.page_rows() + last % o_.page_rows();
  }

  // The newest rows of the pages become tokens; zeros for sequences without any.
  void move_newest(Operand& pages, const Operand& tokens) const {
    pages.role = Role::in_out;
    if (pages.host.size_bytes() == 0 || tokens.host.size_bytes() == 0) return;
    const int64_t width = storage_bytes(key_.in, 1);
    const auto row_bytes = static_cast<size_t>(o_.d * width);
    char* to = tokens.host.view().as<char>() + tokens.offset * width;
    for (int64_t s = 0; s < o_.batch; ++s) {
      const int64_t slot = slot_of(s), rows = o_.page_rows();
      for (int64_t h = 0; h < o_.kv_heads; ++h, to += row_bytes) {
        std::memset(to, 0, row_bytes);
        if (slot < 0) continue;
        char* from =
            pages.host.view().as<char>() + (pages.offset + slot / rows * pages.strides[0] +
                                            slot % rows * pages.strides[1] + h * pages.strides[2]) *
                                               width;
        std::memcpy(to, from, row_bytes);
        std::memset(from, poison_byte(key_.in), row_bytes);
      }
    }
  }

  template <class IndexOf>
  void add_indices(std::string_view name, const IndexOf& index_of) {
    const DType dtype = b_.get("i64") != 0 ? DType::i64 : DType::i32;
    fill_vector(b_.dense(name, Role::input, dtype, {o_.batch}),
                [&](int64_t s) { return static_cast<float>(index_of(s)); });
  }

  void add_table(int64_t rotary) {
    Operand& table = b_.dense("table", Role::input, DType::f32, {o_.kv_len, rotary});
    if (table.host.size_bytes() == 0) return;
    if (!o_.is_normal) {
      fill_rows(table, [&](int64_t, int64_t c) { return c < rotary / 2 ? 1.0f : 0.0f; });
      return;
    }
    const Tensor angles = make_rope_table(o_.kv_len, rotary, 500000.0);
    std::memcpy(table.host.view().data, angles.view().data,
                static_cast<size_t>(angles.size_bytes()));
  }

  RowKey key_;
  Builder& b_;
  const DecodeOptions& o_;
  const DecodeLayout& layout_;
  DecodeSlots slots_;
};

Problem make_append_attention(RowKey key, const Shape& shape, Fill fill, uint64_t seed) {
  Builder b(shape, fill, seed,
            {"batch", "kv_len", "heads", "kv_heads", "d", "page", "lens", "lse", "strided",
             "window", "in_place", "longest", "rope", "rotary", "i64", "settled"});
  const DecodeOptions o = decode_options(shape, fill);
  const DecodeLayout layout(o, seed);
  return AppendAttentionMaker(key, b, o, layout).make();
}

// Workloads are defined for bf16.
bool append_attention_fits(RowKey key, const Shape& shape) {
  return value_of(shape, "batch") * value_of(shape, "kv_len") < 8192 || key.in == DType::bf16;
}

std::vector<Shape> append_attention_test_shapes() {
  std::vector<Shape> shapes{
      {{"batch", 0}, {"kv_len", 5}, {"heads", 2}, {"d", 64}, {"rope", 1}},
      {{"batch", 3},
       {"kv_len", 40},
       {"heads", 4},
       {"kv_heads", 2},
       {"d", 96},
       {"page", 16},
       {"rope", 1},
       {"rotary", 32}},
      {{"batch", 2}, {"kv_len", 70}, {"heads", 2}, {"d", 64}, {"page", 16}, {"lens", 1}},
      {{"batch", 2}, {"kv_len", 33}, {"heads", 2}, {"d", 128}, {"page", 5}, {"rope", 2}},
      {{"batch", 2},
       {"kv_len", 80},
       {"heads", 4},
       {"d", 64},
       {"page", 16},
       {"rope", 1},
       {"window", 30}},
  };
  for (const int64_t d : {64, 128}) {
    const auto add = [&](int64_t batch, int64_t kv_len, int64_t heads, int64_t kv_heads,
                         const Shape& options) {
      Shape shape{{"batch", batch},       {"kv_len", kv_len}, {"heads", heads},
                  {"kv_heads", kv_heads}, {"d", d},           {"rope", 1}};
      shape.insert(shape.end(), options.begin(), options.end());
      shapes.push_back(shape);
    };
    add(1, 1, 2, 2, {{"page", 16}, {"lse", 1}});
    add(1, 1, 4, 1, {{"settled", 1}});
    add(2, 40, 4, 2, {{"page", 16}, {"lens", 1}});
    add(4, 33, 6, 2, {{"settled", 1}, {"i64", 1}});
    add(1, 64, 8, 1, {{"page", 32}, {"settled", 1}});
    add(1, 600, 32, 8, {{"page", 64}, {"settled", 1}, {"longest", 1}});
    add(7, 70, 4, 1, {{"page", 16}, {"lens", 1}, {"i64", 1}, {"lse", 1}});
    add(7, 300, 8, 2, {{"page", 64}, {"lens", 1}, {"settled", 1}});
    add(3, 97, 2, 2, {{"lens", 1}, {"in_place", 1}});
    add(5, 129, 12, 1, {{"page", 32}, {"lens", 1}});
    add(2, 200, 40, 1, {{"page", 16}, {"settled", 1}});
    add(3, 1100, 8, 1, {{"page", 128}, {"lens", 1}, {"strided", 1}});
    add(40, 160, 8, 8, {{"page", 16}, {"lens", 1}, {"strided", 2}, {"settled", 1}});
    add(2, 2300, 8, 2, {{"page", 64}, {"lens", 1}, {"settled", 1}});
  }
  return shapes;
}

}  // namespace

ProblemMaker attention_append_maker() {
  const std::vector<RowKey> keys{
      {DType::bf16, DType::bf16}, {DType::f16, DType::f16}, {DType::f32, DType::f32}};
  std::vector<Shape> llama;
  for (const int64_t batch : {1, 4, 16, 64}) {
    llama.push_back({{"batch", batch},
                     {"kv_len", 640},
                     {"heads", 32},
                     {"kv_heads", 8},
                     {"d", 128},
                     {"page", 64},
                     {"rope", 1},
                     {"settled", 1},
                     {"longest", 1}});
  }
  return {"attention_append",
          &make_append_attention,
          &append_attention_fits,
          keys,
          append_attention_test_shapes(),
          {{"decode/append", llama}},
          "attention"};
}

}  // namespace tessera::bench
