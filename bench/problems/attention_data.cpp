// Integer problems whose weights are 0 or equal, random ones, and the bounds of both.
// SPDX-License-Identifier: MIT
//
// Integers. The key at place j of its sequence is the digits of j to the base of 8, each as one of
// eight elements set: k[8 n + digit n] = 1 (from the fourth digit on 8, for the range of e4m3). A
// query may then choose its keys exactly:
//   last     q[8 n + v] = (v - t_n) 8^n     scores j - t: the last key seen, t, has 0, those before
//                                           it less, and those behind, which are not seen, more
//   first    the same with its sign turned
//   target   q[8 n + v] = -(v != t_n)       key t has 0, all others -1 or less
//   block    without the lowest digit       the keys seen of t's eight, a power of two of them
//   uniform  0                              all keys seen, a power of two of them
// Scores that are not 0 are -1 or less times 512, so their weights are 0 in float and the others
// equal: P is 1 before it is rounded, the sum a power of two, and out a sum of small integers over
// it. Softcap keeps 0 at 0 and the rest below -127. No room is left for rounding, but that a slope
// moves the largest score away from 0, where a product by log2(e) may be rounded: see the bound.
#include "bench/problems/attention_data.h"

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {
namespace {

constexpr int64_t kBase = 8;
constexpr int64_t kMostDigits = 4;
constexpr int64_t kMostValue = 8;     // |v| of integers
constexpr float kIntegerScale = 512;  // between neighbouring scores
constexpr float kLowSink = -1000;     // of integers: weighs nothing
constexpr float kHighSink = -40;      // beside a score of 0 it still vanishes in float

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
#pragma omp parallel for schedule(static) if (num_tokens > 1000)
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t h = 0; h < num_heads; ++h) {
      values.copy((t * num_heads + h) * num_cols, num_cols, x.host,
                  tokens[static_cast<size_t>(t)].place + h * head_stride(x));
    }
  }
}

// Keys and queries of integers.
class Code {
 public:
  Code(const AttentionOptions& o, Random random) : o_(o), random_(random) {
    for (int64_t reach = kBase; reach < o.kv_len; reach *= kBase) ++num_digits_;
    if (num_digits_ > kMostDigits || num_digits_ * kBase > o.d) {
      fail(concat("problem: integers of ", o.kv_len, " keys need d of ", num_digits_ * kBase,
                  " or more, and at most 4096 keys"));
    }
  }

  // The element of digit n with value v. Heads and sequences are turned against each other, so that
  // another's key does not match.
  int64_t dim(int64_t n, int64_t v, int64_t s, int64_t kv_head) const {
    return (n * kBase + v + 3 * kv_head + 7 * s) % o_.d;
  }
  static int64_t digit(int64_t j, int64_t n) { return (j >> (3 * n)) % kBase; }

  void write_key(Operand& k, const Token& token, int64_t kv_head) const {
    const int64_t place = clear(k, token, kv_head);
    for (int64_t n = 0; n < num_digits_; ++n) {
      const int64_t c = dim(n, digit(token.idx, n), token.sequence, kv_head);
      store(k.host, place + c, n < 3 ? 1.0f : static_cast<float>(kBase));
    }
  }

  void write_query(Operand& q, const Token& token, int64_t head, const KeyRanges& seen) const {
    const int64_t place = clear(q, token, head);
    const Choice choice = choose(seen, place);
    if (choice.kind == Kind::uniform) return;
    const int64_t kv_head = head / (o_.heads / o_.kv_heads);
    for (int64_t n = choice.kind == Kind::block ? 1 : 0; n < num_digits_; ++n) {
      const int64_t wanted = digit(choice.target, n);
      const int64_t weight = n == 0 ? 1 : n == 1 ? kBase : kBase * kBase;
      for (int64_t v = 0; v < kBase; ++v) {
        int64_t value = v == wanted ? 0 : -1;
        if (choice.kind == Kind::last) value = (v - wanted) * weight;
        if (choice.kind == Kind::first) value = (wanted - v) * weight;
        store(q.host, place + dim(n, v, token.sequence, kv_head), static_cast<float>(value));
      }
    }
  }

 private:
  enum class Kind : uint8_t { last, first, target, block, uniform };
  struct Choice {
    Kind kind;
    int64_t target;
  };

  static int64_t clear(Operand& x, const Token& token, int64_t head) {
    const int64_t place = token.place + head * head_stride(x);
    for (int64_t c = 0; c < x.shape.back(); ++c) store(x.host, place + c, 0);
    return place;
  }

  static int64_t num_seen(const KeyRanges& seen, KeyRange within) {
    int64_t count = 0;
    for (int64_t j = within.begin; j < within.end; ++j) {
      const auto holds = [&](const KeyRange& r) { return r.begin <= j && j < r.end; };
      if (holds(seen[0]) || holds(seen[1])) ++count;
    }
    return count;
  }

  Choice choose(const KeyRanges& seen, int64_t draw) const {
    const bool has_first = !seen[0].is_empty(), has_second = !seen[1].is_empty();
    if (!has_first && !has_second) return {Kind::uniform, 0};
    const KeyRange& one = !has_second || (has_first && random_.sign(draw) > 0) ? seen[0] : seen[1];
    KeyRange all = one;
    for (const KeyRange& range : seen) {
      if (range.is_empty()) continue;
      all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    }
    const int64_t any = random_.integer(draw, one.begin, one.end - 1);
    const int64_t kind = random_.stream(1).integer(draw, 0, 7);
    if (kind < 3) return {Kind::last, all.end - 1};
    if (kind < 5) return {Kind::first, all.begin};
    const int64_t block = any / kBase * kBase;
    // A slope tells equal keys apart.
    if (kind == 6 && !o_.has_alibi && is_power_of_two(num_seen(seen, {block, block + kBase}))) {
      return {Kind::block, any};
    }
    if (kind == 7 && !o_.has_alibi && is_power_of_two(num_seen(seen, all))) {
      return {Kind::uniform, 0};
    }
    return {Kind::target, any};
  }

  AttentionOptions o_;
  Random random_;
  int64_t num_digits_ = 1;
};

// A score is of variance 1 and a sum of d products, each addition rounded or cut on either side.
// FP8 products are summed 32 at a time with some 14 bits. The approximate tanh errs by 2^-11.
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
  return {.scale = o.is_normal ? 0.0f : kIntegerScale,
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
  const Code code(o, random);
  for (const Token& token : tokens) {
    const AttentionSequence& sequence = layout.sequences()[static_cast<size_t>(token.sequence)];
    const KeyRanges seen = layout.seen_by(sequence, token.idx);
    for (int64_t h = 0; h < o.heads; ++h) code.write_query(q, token, h, seen);
  }
}

void fill_keys(Operand& k, const AttentionOptions& o, const AttentionLayout& layout,
               Random random) {
  if (k.host.size_bytes() == 0) return;
  const std::vector<Token> tokens = key_tokens(k, o, layout, false);
  if (o.is_normal) return fill_random(k, tokens, random);
  const Code code(o, random);
  for (const Token& token : tokens) {
    for (int64_t h = 0; h < o.kv_heads; ++h) code.write_key(k, token, h);
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

// Random data. The sum of |v| times weights is that of a mean of |v|: below 4, for normal v, but
// for less than one in ten million even over two keys; the largest weight is 1 before it is rounded
// and takes no error. Each weight errs by its rounding to the type of v, and by the error of its
// score and of the largest one. FP8 weights have 4 bits, those below 2^-10 of the largest vanish,
// and products are summed with some 14 bits. Then out is rounded once on either side.
Bound attention_bound(RowKey key, const AttentionOptions& o) {
  if (!o.is_normal) {
    // The sign of a zero is not asked for. A slope of 1/16 over 513 keys moves the largest score to
    // 32, whose product by log2(e) may be rounded: 2^-18 of a weight, less than 16 bits show.
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
