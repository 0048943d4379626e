// Integer problems whose weights are 0 or equal, random ones, and the bounds of both.
// SPDX-License-Identifier: MIT
//
// Integers are those of key_code.h. Softcap keeps 0 at 0 and the rest below -127. A slope moves the
// largest score away from 0, where a product by log2(e) may be rounded: see the bound.
#include "bench/problems/attention_data.h"

#include "bench/problems/key_code.h"
#include "core/parallel.h"

namespace tessera::bench {
namespace {

constexpr int64_t kMostValue = 8;  // |v| of integers
constexpr float kLowSink = -1000;  // of integer problems: has no weight
constexpr float kHighSink = -40;   // vanishes in float next to a score of 0

// One row of heads and where it lies.
struct Token {
  int64_t sequence;
  int64_t idx;    // within its sequence
  int64_t place;  // of its first head's first element in storage
};

int64_t head_stride(const Operand& x) { return x.strides[x.strides.size() - 2]; }

std::vector<Token> query_tokens(const Operand& q, const AttentionOptions& o,
                                const AttentionLayout& layout) {
  std::vector<Token> tokens;
  const int64_t row = q.strides[q.strides.size() - 3];
  for (int64_t s = 0; s < o.batch; ++s) {
    const AttentionSequence& sequence = layout.sequences()[static_cast<size_t>(s)];
    const int64_t begin = o.is_ragged ? sequence.q_begin * row : s * q.strides[0];
    for (int64_t i = 0; i < sequence.q_len; ++i)
      tokens.push_back({s, i, q.offset + begin + i * row});
  }
  return tokens;
}

std::vector<Token> key_tokens(const Operand& x, const AttentionOptions& o,
                              const AttentionLayout& layout, bool is_v) {
  std::vector<Token> tokens;
  const int64_t row = x.strides[x.strides.size() - 3];
  for (int64_t s = 0; s < o.batch; ++s) {
    const AttentionSequence& sequence = layout.sequences()[static_cast<size_t>(s)];
    if (!o.is_paged()) {
      const int64_t begin = o.is_ragged ? sequence.kv_begin * row : s * x.strides[0];
      for (int64_t t = 0; t < sequence.kv_len; ++t) {
        tokens.push_back({s, t, x.offset + begin + t * row});
      }
      continue;
    }
    const std::vector<bool> seen = layout.seen_keys(sequence);
    for (int64_t begin = 0; begin < sequence.kv_len; begin += o.page) {
      const int64_t end = std::min(begin + o.page, sequence.kv_len);
      if (std::find(seen.begin() + begin, seen.begin() + end, true) == seen.begin() + end) continue;
      const int64_t page = x.offset + layout.page_of(s, begin, is_v) * x.strides[0];
      for (int64_t t = begin; t < end; ++t) tokens.push_back({s, t, page + (t - begin) * row});
    }
  }
  return tokens;
}

void fill_random(Operand& x, const std::vector<Token>& tokens, Random random) {
  const int64_t num_heads = x.shape[x.shape.size() - 2], num_cols = x.shape.back();
  const auto num_tokens = static_cast<int64_t>(tokens.size());
  const RepeatingValues values(x.host.view().dtype, num_tokens * num_heads * num_cols,
                               [=](int64_t i) { return random.normal(i); });
  parallel_for(num_tokens, num_heads * num_cols, [&](int64_t t) {
    for (int64_t h = 0; h < num_heads; ++h) {
      values.copy((t * num_heads + h) * num_cols, num_cols, x.host,
                  tokens[static_cast<size_t>(t)].place + h * head_stride(x));
    }
  });
}

void store_row(Operand& x, const Token& token, int64_t head, std::span<const float> elements) {
  const int64_t place = token.place + head * head_stride(x);
  for (size_t c = 0; c < elements.size(); ++c) {
    store(x.host, place + static_cast<int64_t>(c), elements[c]);
  }
}

KeyCode key_code(const AttentionOptions& o) { return {o.kv_len, o.d, KeyCode::kForFp8}; }
int64_t turn_of(int64_t sequence, int64_t kv_head) { return 3 * kv_head + 7 * sequence; }

std::vector<int64_t> seen_list(const KeyRanges& seen) {
  std::vector<int64_t> keys;
  for (const KeyRange& range : seen) {
    for (int64_t j = range.begin; j < range.end; ++j) keys.push_back(j);
  }
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

// A score has variance 1 and is a sum of d products; both sides round or truncate each addition.
// FP8 products are summed 32 at a time with about 14 bits. The approximate tanh errs by 2^-11.
double score_error(RowKey key, const AttentionOptions& o) {
  const double d = static_cast<double>(o.d);
  double error = 4 * d * 0x1p-22 + 0x1p-20;
  if (key.in == DType::e4m3) error += 4 * (d / 32 + 1) * 0x1p-13;
  if (o.has_softcap)
    error += attention_scalars(o).softcap * (key.in == DType::f32 ? 0x1p-20 : 0x1p-10);
  if (o.has_alibi) error += 0x1p-15;
  return error;
}

double sum_of_weights_error(const AttentionOptions& o) {
  return (static_cast<double>(o.kv_len) + 32) * 0x1p-23;
}

}  // namespace

AttentionScalars attention_scalars(const AttentionOptions& o) {
  return {.scale = o.is_normal ? 0.0f : kKeyCodeScale,
          .softcap = !o.has_softcap ? 0.0f
                     : o.is_normal  ? 2.0f
                                    : 128.0f,
          .dropout_rate = !o.has_dropout ? 0.0f
                          : o.is_normal  ? 0.25f
                                         : 0.5f};
}

void fill_queries(Operand& q, const AttentionOptions& o, const AttentionLayout& layout,
                  Random random) {
  if (q.host.size_bytes() == 0) return;
  const std::vector<Token> tokens = query_tokens(q, o, layout);
  if (o.is_normal) return fill_random(q, tokens, random);
  const KeyCode code = key_code(o);
  std::vector<float> elements(static_cast<size_t>(o.d));
  for (const Token& token : tokens) {
    const AttentionSequence& sequence = layout.sequences()[static_cast<size_t>(token.sequence)];
    const std::vector<int64_t> seen = seen_list(layout.seen_by(sequence, token.idx));
    for (int64_t h = 0; h < o.heads; ++h) {
      const auto choice =
          KeyCode::choose(seen, !o.has_alibi, random, token.place + h * head_stride(q));
      code.write_query(choice, turn_of(token.sequence, h / (o.heads / o.kv_heads)), elements);
      store_row(q, token, h, elements);
    }
  }
}

void fill_keys(Operand& k, const AttentionOptions& o, const AttentionLayout& layout,
               Random random) {
  if (k.host.size_bytes() == 0) return;
  const std::vector<Token> tokens = key_tokens(k, o, layout, false);
  if (o.is_normal) return fill_random(k, tokens, random);
  const KeyCode code = key_code(o);
  std::vector<float> elements(static_cast<size_t>(o.d));
  for (const Token& token : tokens) {
    for (int64_t h = 0; h < o.kv_heads; ++h) {
      code.write_key(token.idx, turn_of(token.sequence, h), elements);
      store_row(k, token, h, elements);
    }
  }
}

void fill_values(Operand& v, const AttentionOptions& o, const AttentionLayout& layout,
                 Random random) {
  if (v.host.size_bytes() == 0) return;
  const std::vector<Token> tokens = key_tokens(v, o, layout, true);
  if (o.is_normal) return fill_random(v, tokens, random);
  for (const Token& token : tokens) {
    for (int64_t i = 0; i < o.kv_heads * o.dv; ++i) {
      const int64_t place = token.place + i / o.dv * head_stride(v) + i % o.dv;
      store(v.host, place, static_cast<float>(random.integer(place, -kMostValue, kMostValue)));
    }
  }
}

void fill_sinks(Operand& sinks, const AttentionOptions& o, Random random) {
  fill_vector(sinks, [&](int64_t h) {
    if (o.is_normal) return random.normal(h);
    return h % 2 == 0 || o.has_alibi ? kLowSink - static_cast<float>(h) : kHighSink;
  });
}

void fill_slopes(Operand& slopes, const AttentionOptions& o) {
  fill_vector(slopes, [&](int64_t h) {
    return std::ldexp(1.0f, -static_cast<int>(h % 4) - (o.is_normal ? 1 : 4));
  });
}

// Integers: powers of two, of q and k together 1 or 2. Random data: of q and k together 0.49 to
// 1.43, of v to 1.2.
void fill_quant_scale(Operand& scale, const AttentionOptions& o, int which) {
  fill_rows(scale, [&](int64_t s, int64_t g) {
    const int turn = static_cast<int>((s + 2 * g) % 3);
    if (o.is_normal)
      return which == 0 ? 0.7f + 0.1f * static_cast<float>(turn)
                        : 1.2f - 0.2f * static_cast<float>((turn + which) % 3);
    if (which == 2) return std::ldexp(1.0f, turn - 1);
    return std::ldexp(1.0f, which == 0 ? turn - 1 : 1 - turn + static_cast<int>(g % 2));
  });
}

// Random data. The weighted mean of |v| is below 4 for normal v; even over two keys it is larger in
// less than one of ten million cases. The largest weight is exactly 1. Each weight errs by its
// rounding to the type of v, and by the error of its score and of the largest one. FP8 weights have
// 4 bits, those below 2^-10 of the largest vanish, and products are summed with about 14 bits. Then
// out is rounded once on either side.
Bound attention_bound(RowKey key, const AttentionOptions& o) {
  if (!o.is_normal) {
    // The sign of a zero does not matter. A slope of 1/16 over 513 keys moves the largest score to
    // 32, whose product by log2(e) may be rounded: an error of 2^-18 of a weight, which 16 bits do
    // not show.
    return {.absolute = 0x1p-100, .relative = o.has_alibi && key.out == DType::f32 ? 0x1p-16 : 0.0};
  }
  double largest = 4;
  if (o.has_dropout) largest /= 1.0 - attention_scalars(o).dropout_rate;
  if (o.has_scales) largest *= 1.2;
  double weight_error = 2 * score_error(key, o) + sum_of_weights_error(o);
  switch (key.in) {
    case DType::e4m3:
      weight_error += 0x1p-3 + (static_cast<double>(o.kv_len) / 32 + 1) * 0x1p-13;
      break;
    case DType::f32: break;
    default: weight_error += unit_roundoff(key.in);
  }
  return rounded_twice(key.out, 0, largest * weight_error);
}

Bound lse_bound(RowKey key, const AttentionOptions& o) {
  if (!o.is_normal) return {.absolute = 0x1p-17, .relative = 0x1p-20};
  return {.absolute = score_error(key, o) + sum_of_weights_error(o) + 0x1p-18, .relative = 0x1p-20};
}

}  // namespace tessera::bench
