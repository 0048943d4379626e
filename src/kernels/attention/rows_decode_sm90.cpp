// Decode attention's table of the sm90 library.
// SPDX-License-Identifier: MIT
#include "kernels/attention/decode_sm90/launch.h"
#include "kernels/attention/rows.h"

namespace tessera::kernels {
namespace {

// The format of pages that hold codes of `Format`, and their type.
template <class Format>
struct Stored;
template <class T>
struct Stored<KvPlain<T>> {
  static constexpr KvFormat kFormat = KvFormat::plain;
  static constexpr DType kPages = dtype_of<T>;
};
template <KvFormat kFormat_, DType kPages_>
struct StoredAs {
  static constexpr KvFormat kFormat = kFormat_;
  static constexpr DType kPages = kPages_;
};
template <>
struct Stored<KvE4m3> : StoredAs<KvFormat::fp8, DType::e4m3> {};
template <>
struct Stored<KvE5m2> : StoredAs<KvFormat::fp8, DType::e5m2> {};
template <>
struct Stored<KvInt8> : StoredAs<KvFormat::int8, DType::i8> {};
template <>
struct Stored<KvUint8> : StoredAs<KvFormat::uint8, DType::u8> {};
template <>
struct Stored<KvInt4> : StoredAs<KvFormat::int4, DType::i4> {};
template <>
struct Stored<KvInt4Columns> : StoredAs<KvFormat::int4_columns, DType::i4> {};

template <class Format, int kD>
bool accepts(const DecodeAttentionArgs& args) {
  return accepts_decode_sm90(args, kD, Stored<Format>::kFormat, Stored<Format>::kPages);
}

template <class Q, class Format, int kD>
constexpr Row<DecodeAttentionArgs> row(std::string_view label) {
  return {"attention_decode",
          Library::sm90,
          {dtype_of<Q>, dtype_of<Q>},
          &launch_decode_sm90<Q, Format, kD>,
          label,
          &accepts<Format, kD>};
}

template <class T, int kD>
bool accepts_streaming(const DecodeAttentionArgs& args) {
  return accepts<KvPlain<T>, kD>(args) && accepts_decode_streaming(args);
}

// Behind rows that take the same, so that these are only found by their names.
template <class T, int kD>
constexpr Row<DecodeAttentionArgs> streaming_row(std::string_view label) {
  return {"attention_decode",
          Library::sm90,
          {dtype_of<T>, dtype_of<T>},
          &launch_decode_streaming<T, KvPlain<T>, kD>,
          label,
          &accepts_streaming<T, kD>,
          false};
}

constexpr Row<DecodeAttentionArgs> kRows[] = {
    row<Bf16, KvPlain<Bf16>, 128>("bf16_d128"),
    row<Bf16, KvPlain<Bf16>, 64>("bf16_d64"),
    row<Bf16, KvPlain<Bf16>, 96>("bf16_d96"),
    row<Bf16, KvPlain<Bf16>, 256>("bf16_d256"),
    row<Bf16, KvPlain<Bf16>, 80>("bf16_d80"),
    row<Bf16, KvPlain<Bf16>, 112>("bf16_d112"),
    row<Bf16, KvPlain<Bf16>, 160>("bf16_d160"),
    row<Bf16, KvPlain<Bf16>, 192>("bf16_d192"),
    row<Bf16, KvE4m3, 128>("bf16_e4m3_d128"),
    row<Bf16, KvE4m3, 64>("bf16_e4m3_d64"),
    row<Bf16, KvE4m3, 96>("bf16_e4m3_d96"),
    row<Bf16, KvE4m3, 256>("bf16_e4m3_d256"),
    row<Bf16, KvInt8, 128>("bf16_i8_d128"),
    row<Bf16, KvInt8, 64>("bf16_i8_d64"),
    row<Bf16, KvInt8, 96>("bf16_i8_d96"),
    row<Bf16, KvInt8, 256>("bf16_i8_d256"),
    row<Bf16, KvInt4, 128>("bf16_i4_d128"),
    row<Bf16, KvInt4, 64>("bf16_i4_d64"),
    row<Bf16, KvInt4, 256>("bf16_i4_d256"),
    row<Bf16, KvE5m2, 128>("bf16_e5m2_d128"),
    row<Bf16, KvE5m2, 64>("bf16_e5m2_d64"),
    row<Bf16, KvUint8, 128>("bf16_u8_d128"),
    row<Bf16, KvUint8, 64>("bf16_u8_d64"),
    row<Bf16, KvInt4Columns, 128>("bf16_i4_columns_d128"),
    row<Bf16, KvInt4Columns, 64>("bf16_i4_columns_d64"),

    row<F16, KvPlain<F16>, 128>("f16_d128"),
    row<F16, KvPlain<F16>, 64>("f16_d64"),
    row<F16, KvPlain<F16>, 96>("f16_d96"),
    row<F16, KvPlain<F16>, 256>("f16_d256"),
    row<F16, KvPlain<F16>, 80>("f16_d80"),
    row<F16, KvPlain<F16>, 112>("f16_d112"),
    row<F16, KvPlain<F16>, 160>("f16_d160"),
    row<F16, KvPlain<F16>, 192>("f16_d192"),
    row<F16, KvE4m3, 128>("f16_e4m3_d128"),
    row<F16, KvE4m3, 64>("f16_e4m3_d64"),
    row<F16, KvE4m3, 96>("f16_e4m3_d96"),
    row<F16, KvE4m3, 256>("f16_e4m3_d256"),
    row<F16, KvInt8, 128>("f16_i8_d128"),
    row<F16, KvInt8, 64>("f16_i8_d64"),
    row<F16, KvInt8, 96>("f16_i8_d96"),
    row<F16, KvInt8, 256>("f16_i8_d256"),
    row<F16, KvInt4, 128>("f16_i4_d128"),
    row<F16, KvInt4, 64>("f16_i4_d64"),
    row<F16, KvInt4, 256>("f16_i4_d256"),
    row<F16, KvE5m2, 128>("f16_e5m2_d128"),
    row<F16, KvE5m2, 64>("f16_e5m2_d64"),
    row<F16, KvUint8, 128>("f16_u8_d128"),
    row<F16, KvUint8, 64>("f16_u8_d64"),
    row<F16, KvInt4Columns, 128>("f16_i4_columns_d128"),
    row<F16, KvInt4Columns, 64>("f16_i4_columns_d64"),

    streaming_row<Bf16, 128>("bf16_d128_streaming"),
    streaming_row<Bf16, 64>("bf16_d64_streaming"),
    streaming_row<F16, 128>("f16_d128_streaming"),
    streaming_row<F16, 64>("f16_d64_streaming"),
};

}  // namespace

std::span<const Row<DecodeAttentionArgs>> attention_decode_rows_sm90() { return kRows; }

}  // namespace tessera::kernels
