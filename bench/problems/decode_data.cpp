// Integers (key_code.h) and random numbers as codes and scales, and the bounds of both.
// SPDX-License-Identifier: MIT
//
// Integers are exact in every format: scales are powers of two, lows multiples of them.
#include "bench/problems/decode_data.h"

#include <algorithm>
#include <span>

#include "bench/problems/key_code.h"
#include "core/parallel.h"
#include "tessera/ops/kv_cache.h"

namespace tessera::bench {
namespace {

constexpr int64_t kMostValue = 7;  // |v| of integers: what three bits of e5m2 hold
constexpr float kLowSink = -1000;  // of integer problems: has no weight
constexpr float kHighSink = -40;   // vanishes in float next to a score of 0

// A row of a page, and the token it holds.
struct StoredRow {
  int64_t page, row, sequence, token;
};

// Every row that some query may read, without duplicates.
std::vector<StoredRow> stored_rows(const DecodeOptions& o, const DecodeLayout& layout,
                                   bool are_values) {
  std::vector<StoredRow> rows;
  std::vector<bool> is_known(static_cast<size_t>(layout.num_pages() * o.page_rows()));
  for (int64_t s = 0; s < o.batch; ++s) {
    const std::vector<bool> read = layout.read_tokens(s);
    for (int64_t t = 0; t < layout.length(s); ++t) {
      if (!read[static_cast<size_t>(t)] || (!are_values && layout.is_in_tail(s, t))) continue;
      const int64_t page = layout.page_of(s, t), row = t % o.page_rows();
      const auto place = static_cast<size_t>(page * o.page_rows() + row);
      if (is_known[place]) continue;
      is_known[place] = true;
      rows.push_back({page, row, s, t});
    }
  }
  return rows;
}

// Sequences that share pages have the same keys.
int64_t turn_of(const DecodeOptions& o, int64_t sequence, int64_t kv_head) {
  return 3 * kv_head + (o.shared > 0 ? 0 : 7 * sequence);
}

KeyCode key_code(const DecodeOptions& o) { return {o.kv_len, o.d, KeyCode::kFor16Bits}; }

int64_t element_of(const Operand& x, int64_t page, int64_t row, int64_t head) {
  return x.offset + page * x.strides[0] + row * x.strides[1] + head * x.strides[2];
}

bool is_nibble(KvFormat format) { return traits(format).dtype == DType::i4; }
// Whether scales belong to rows or columns, rather than being chosen per head.
bool has_own_scales(KvFormat format) {
  return traits(format).scales == KvScales::row || traits(format).scales == KvScales::column;
}

struct Scale {
  float scale, low;
};

// The scale of one row and head, or of a column of 32 rows; `idx` identifies it. Integer keys are 0
// or 1, integer values are code - 8. Random codes have a variance of about 1 at a factor of 1.
Scale scale_of(const DecodeOptions& o, KvFormat stored, bool are_values, Random random,
               int64_t idx) {
  if (o.is_normal) {
    const float factor = 0.75f + 0.5f * static_cast<float>(random.integer(idx, 0, 1000)) * 1e-3f;
    return {factor * (is_nibble(stored) ? 0.4f : 0.03125f),
            factor * (is_nibble(stored) ? -3.0f : -4.0f)};
  }
  const float scale = std::ldexp(1.0f, -static_cast<int>(random.integer(idx, 0, 2)));
  if (are_values) return {2 * scale, -16 * scale};
  return {scale, -static_cast<float>(random.stream(2).integer(idx, 0, 1))};
}

// A random code, before it is stored.
float random_code(KvFormat stored, Random random, int64_t idx) {
  const float x = random.normal(idx);
  switch (stored) {
    case KvFormat::int8: return std::clamp(std::round(32.0f * x), -127.0f, 127.0f);
    case KvFormat::uint8: return std::clamp(std::round(32.0f * x) + 128.0f, 0.0f, 255.0f);
    case KvFormat::int4:
    case KvFormat::int4_token: return std::clamp(std::round(2.5f * x + 7.5f), 0.0f, 15.0f);
    default: return x;
  }
}

// Two nibbles of random codes.
uint8_t random_pair(Random random, int64_t idx) {
  const auto code = [&](int64_t i) {
    return static_cast<unsigned>(random_code(KvFormat::int4_token, random, i));
  };
  return static_cast<uint8_t>(code(2 * idx) | code(2 * idx + 1) << 4);
}

// Nibbles are copied as the bytes they fill.
void fill_random_codes(Operand& pages, const std::vector<StoredRow>& rows, const DecodeOptions& o,
                       KvFormat stored, Random random) {
  const bool has_pairs = is_nibble(stored);
  const int64_t per_byte = has_pairs ? 2 : 1, num_cols = o.d / per_byte;
  const auto num_rows = static_cast<int64_t>(rows.size());
  const DType dtype = has_pairs ? DType::u8 : pages.host.view().dtype;
  const RepeatingValues values(dtype, num_rows * o.kv_heads * num_cols, [=](int64_t i) {
    return has_pairs ? static_cast<float>(random_pair(random, i)) : random_code(stored, random, i);
  });
  TensorView storage = pages.host;
  storage.dtype = dtype;
  parallel_for(num_rows, o.kv_heads * num_cols, [&](int64_t i) {
    const StoredRow& at = rows[static_cast<size_t>(i)];
    for (int64_t h = 0; h < o.kv_heads; ++h) {
      values.copy((i * o.kv_heads + h) * num_cols, num_cols, storage,
                  element_of(pages, at.page, at.row, h) / per_byte);
    }
  });
}

void fill_head_scales(Operand& scales, const DecodeOptions& o) {
  fill_vector(scales, [&](int64_t h) {
    if (o.is_normal) return 0.75f + 0.25f * static_cast<float>(h % 3);
    return std::ldexp(1.0f, 1 - static_cast<int>(h % 3));
  });
}

// Identifies a scale: the index for scale_of, and the element where it is stored.
struct ScaleAt {
  int64_t idx, element;
};
ScaleAt row_scale_at(const Operand& scales, const DecodeOptions& o, const StoredRow& at,
                     int64_t head) {
  return {(at.page * o.page_rows() + at.row) * o.kv_heads + head,
          element_of(scales, at.page, at.row, head)};
}
ScaleAt column_scale_at(const Operand& scales, const DecodeOptions& o, const StoredRow& at,
                        int64_t head, int64_t column) {
  const int64_t group = at.row / kKvGroup;
  return {((at.page * (o.page_rows() / kKvGroup) + group) * o.kv_heads + head) * o.d + column,
          element_of(scales, at.page, group, head) + column * scales.strides[3]};
}

// Calls f(head, column, scale) for all elements of a row, after the scale is stored.
template <class F>
void for_each_scaled(Operand* scales, const DecodeOptions& o, KvFormat stored, bool are_values,
                     Random random, const StoredRow& at, const F& f) {
  for (int64_t h = 0; h < o.kv_heads; ++h) {
    Scale scale{1.0f, 0.0f};
    if (traits(stored).scales == KvScales::head && scales != nullptr) {
      scale.scale = scales->host.view().as<float>()[scales->offset + h % scales->shape[0]];
    }
    for (int64_t c = 0; c < o.d; ++c) {
      const bool is_by_column = traits(stored).scales == KvScales::column;
      if (has_own_scales(stored) && (c == 0 || is_by_column)) {
        const ScaleAt place =
            is_by_column ? column_scale_at(*scales, o, at, h, c) : row_scale_at(*scales, o, at, h);
        scale = scale_of(o, stored, are_values, random, place.idx);
        store(scales->host, place.element, scale.scale);
        if (traits(stored).has_low) store(scales->host, place.element + 1, scale.low);
      }
      if (!traits(stored).has_low) scale.low = 0.0f;
      f(h, c, scale);
    }
  }
}

void fill_integer_rows(Operand& pages, Operand* scales, const std::vector<StoredRow>& rows,
                       const DecodeOptions& o, bool are_values, Random random) {
  const KvFormat stored = are_values ? o.v : o.k;
  std::vector<float> elements(static_cast<size_t>(o.kv_heads * o.d));
  for (const StoredRow& at : rows) {
    for (int64_t h = 0; h < o.kv_heads && !are_values; ++h) {
      key_code(o).write_key(
          at.token, turn_of(o, at.sequence, h),
          std::span(elements).subspan(static_cast<size_t>(h * o.d), static_cast<size_t>(o.d)));
    }
    for_each_scaled(scales, o, stored, are_values, random.stream(1), at,
                    [&](int64_t h, int64_t c, Scale scale) {
                      const int64_t place = element_of(pages, at.page, at.row, h) + c;
                      float code =
                          (elements[static_cast<size_t>(h * o.d + c)] - scale.low) / scale.scale;
                      if (are_values && traits(stored).has_low) {
                        code = static_cast<float>(random.integer(place, 0, 15));
                      } else if (are_values) {
                        code = static_cast<float>(random.integer(place, -kMostValue, kMostValue));
                      }
                      store(pages.host, place, code);
                    });
  }
}

// A score has variance 1, or 2 if scales vary, and is a sum of d products; both sides round or
// truncate each addition. The approximate tanh errs by 2^-11.
double score_error(RowKey key, const DecodeOptions& o) {
  const double d = static_cast<double>(o.d);
  double error = 6 * d * 0x1p-22 + 0x1p-20;
  if (o.has_softcap)
    error += decode_scalars(o).softcap * (key.in == DType::f32 ? 0x1p-20 : 0x1p-10);
  if (o.has_alibi) error += 0x1p-22 * static_cast<double>(o.kv_len) + 0x1p-15;
  // Scales by column may be multiplied with the queries and rounded to 11 bits: of a score each of
  // d terms q * code * scale / sqrt(d), |q| being 0.8 in the mean and code * scale 1.6.
  if (traits(o.k).scales == KvScales::column && key.in != DType::f32)
    error += 1.3 * std::sqrt(d) * 0x1p-12;
  return error;
}

double sum_of_weights_error(const DecodeOptions& o) {
  return (static_cast<double>(o.kv_len) + 32) * 0x1p-23;
}

}  // namespace

DecodeScalars decode_scalars(const DecodeOptions& o) {
  const float softcap = o.is_normal ? 2.0f : 128.0f;
  return {.scale = o.is_normal ? 0.0f : kKeyCodeScale, .softcap = o.has_softcap ? softcap : 0.0f};
}

void fill_decode_queries(Operand& q, const DecodeOptions& o, const DecodeLayout& layout,
                         Random random) {
  if (q.host.size_bytes() == 0) return;
  std::vector<float> elements(static_cast<size_t>(o.d));
  for (int64_t s = 0; s < o.batch; ++s) {
    for (int64_t i = 0; i < o.q_len; ++i) {
      std::vector<int64_t> seen = o.is_normal ? std::vector<int64_t>() : layout.seen_by(s, i);
      std::ranges::transform(seen, seen.begin(), [&](int64_t t) { return layout.twin_of(t); });
      std::ranges::sort(seen);
      for (int64_t h = 0; h < o.heads; ++h) {
        const int64_t place = q.offset + s * q.strides[0] + (o.has_q_axis ? i * q.strides[1] : 0) +
                              h * q.strides[q.strides.size() - 2];
        if (!o.is_normal) {
          key_code(o).write_query(KeyCode::choose(seen, !o.chooses_one_key, random, place),
                                  turn_of(o, s, h / o.group()), elements);
        }
        for (int64_t c = 0; c < o.d; ++c) {
          store(q.host, place + c,
                o.is_normal ? random.normal(place + c) : elements[static_cast<size_t>(c)]);
        }
      }
    }
  }
}

void fill_cache(Operand& pages, Operand* scales, const DecodeOptions& o, const DecodeLayout& layout,
                bool are_values, Random random) {
  const KvFormat stored = are_values ? o.v : o.k;
  if (pages.host.size_bytes() == 0) return;
  const bool has_head_scales = scales != nullptr && traits(stored).scales == KvScales::head;
  if (has_head_scales) fill_head_scales(*scales, o);
  const std::vector<StoredRow> rows = stored_rows(o, layout, are_values);
  if (!o.is_normal) return fill_integer_rows(pages, scales, rows, o, are_values, random);
  fill_random_codes(pages, rows, o, stored, random);
  if (!has_own_scales(stored)) return;
  for (const StoredRow& at : rows) {
    const bool begins_group = at.row % kKvGroup == 0;
    if (traits(stored).scales == KvScales::column && !begins_group) continue;  // shared
    for_each_scaled(scales, o, stored, are_values, random.stream(1), at,
                    [](int64_t, int64_t, Scale) {});
  }
}

void fill_tail(Operand& tail, const DecodeOptions& o, const DecodeLayout& layout, Random random) {
  if (tail.host.size_bytes() == 0) return;
  std::vector<float> elements(static_cast<size_t>(o.d));
  for (int64_t s = 0; s < o.batch; ++s) {
    const int64_t begin = std::max<int64_t>(0, layout.length(s) - 1) / kKvGroup * kKvGroup;
    for (int64_t t = begin; t < layout.length(s); ++t) {
      for (int64_t h = 0; h < o.kv_heads; ++h) {
        const int64_t place = element_of(tail, layout.tail_of(s), t % kKvGroup, h);
        if (!o.is_normal) key_code(o).write_key(t, turn_of(o, s, h), elements);
        for (int64_t c = 0; c < o.d; ++c) {
          store(tail.host, place + c,
                o.is_normal ? random.normal(place + c) : elements[static_cast<size_t>(c)]);
        }
      }
    }
  }
}

void fill_decode_sinks(Operand& sinks, const DecodeOptions& o, Random random) {
  fill_vector(sinks, [&](int64_t h) {
    if (o.is_normal) return random.normal(h);
    return h % 2 == 0 || o.has_alibi ? kLowSink - static_cast<float>(h) : kHighSink;
  });
}

void fill_decode_slopes(Operand& slopes, const DecodeOptions& o) {
  fill_vector(slopes, [&](int64_t h) {
    return std::ldexp(1.0f, -static_cast<int>(h % 4) - (o.is_normal ? 1 : 4));
  });
}

// Random data. The weighted mean of |v| is below 5, for normal v times up to 1.25. Each weight errs
// by its rounding to 16 bits, if a row rounds it, and by the error of its score and of the largest
// one. Then out is rounded once on either side.
Bound decode_bound(RowKey key, const DecodeOptions& o) {
  if (!o.is_normal) {
    // The sign of a zero does not matter. A slope of 1/16 over 4096 keys moves the largest score
    // to 256, whose product by log2(e) may be rounded: an error of 2^-15 of a weight, which 16 bits
    // do not show.
    return {.absolute = 0x1p-100, .relative = o.has_alibi && key.out == DType::f32 ? 0x1p-13 : 0.0};
  }
  double weight_error = 2 * score_error(key, o) + sum_of_weights_error(o);
  if (key.in != DType::f32) weight_error += unit_roundoff(key.in);
  return rounded_twice(key.out, 0, 5 * weight_error);
}

Bound decode_lse_bound(RowKey key, const DecodeOptions& o) {
  if (!o.is_normal) return {.absolute = 0x1p-17, .relative = 0x1p-20};
  return {.absolute = score_error(key, o) + sum_of_weights_error(o) + 0x1p-18, .relative = 0x1p-20};
}

}  // namespace tessera::bench
