// The safetensors format: eight bytes of header length, a JSON header, and the tensors' bytes.
// SPDX-License-Identifier: MIT
#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "core/text.h"
#include "model/bounded_json.h"
#include "model/safetensors_header.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr size_t kLengthBytes = 8;

// Every type of the format, and our dtype where there is one.
struct StoredType {
  std::string_view name;
  int num_bits;
  std::optional<DType> dtype;
};
constexpr StoredType kTypes[] = {
    {"F32", 32, DType::f32},
    {"F16", 16, DType::f16},
    {"BF16", 16, DType::bf16},
    {"F8_E4M3", 8, DType::e4m3},
    {"F8_E5M2", 8, DType::e5m2},
    {"I8", 8, DType::i8},
    {"U8", 8, DType::u8},
    {"I32", 32, DType::i32},
    {"I64", 64, DType::i64},
    {"F64", 64, {}},
    {"C64", 64, {}},
    {"BOOL", 8, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"U32", 32, {}},
    {"U64", 64, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
};

uint64_t read_length(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  return length;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The length of the header, checked to lie within the file. `first` holds the file's first
// kFirstBytes, or all of a shorter file.
constexpr size_t kFirstBytes = 32;
size_t header_length(std::span<const std::byte> first, uint64_t file_bytes,
                     std::string_view origin) {
  if (as_text(first).starts_with("version https://git-lfs")) {
    fail(concat(origin, ": is a Git LFS pointer, not the weights; fetch them with git lfs pull"));
  }
  if (file_bytes < kLengthBytes + 2) {
    fail(concat(origin, ": has ", file_bytes, " bytes; the shortest safetensors file has ",
                kLengthBytes + 2, ": it is empty or cut off"));
  }
  const uint64_t length = read_length(first);
  if (length < 2) fail(concat(origin, ": the header has ", length, " bytes; an object has 2"));
  if (length > kMaxHeaderBytes) {
    fail(concat(origin, ": the header has ", length, " bytes; at most ", kMaxHeaderBytes,
                " are allowed: this is not a safetensors file, or a damaged one"));
  }
  if (length > file_bytes - kLengthBytes) {
    fail(concat(origin, ": the header has ", length, " bytes and the file ", file_bytes,
                "; it is cut off: fetch it again"));
  }
  return static_cast<size_t>(length);
}

// Checks an entry against the bytes that follow the header, and makes its tensor.
class EntryReader {
 public:
  EntryReader(uint64_t first_byte, uint64_t data_bytes, std::string_view origin)
      : first_byte_(first_byte), data_bytes_(data_bytes), origin_(origin) {}

  StoredTensor read(const HeaderEntry& entry) const {
    const auto type = std::ranges::find(kTypes, entry.type, &StoredType::name);
    if (type == std::end(kTypes)) {
      refuse(entry, concat("has the unknown type '", shown(entry.type), "'"));
    }
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      refuse(entry, concat("lies in bytes [", entry.begin, ", ", entry.end, ") of ", data_bytes_,
                           "; the file is cut off or damaged: fetch it again"));
    }
    const uint64_t num_bytes = entry.end - entry.begin;
    const std::optional<uint64_t> needed = bytes_needed(entry, type->num_bits);
    if (!needed) {
      refuse(entry,
             concat("has the shape ", list(entry), ", whose size overflows or is not whole bytes"));
    }
    if (*needed != num_bytes) {
      refuse(entry, concat("is ", type->name, list(entry), ", which takes ", *needed,
                           " bytes, and has ", num_bytes));
    }
    StoredTensor tensor;
    tensor.name = entry.name;
    tensor.type = type->name;
    for (const uint64_t size : entry.shape) tensor.shape.push_back(static_cast<int64_t>(size));
    if (tensor.shape.size() <= kMaxRank) tensor.dtype = type->dtype;
    tensor.begin = static_cast<int64_t>(first_byte_ + entry.begin);
    tensor.num_bytes = static_cast<int64_t>(num_bytes);
    return tensor;
  }

  [[noreturn]] void refuse(const HeaderEntry& entry, std::string_view why) const {
    fail(concat(origin_, ": tensor '", shown(entry.name), "' ", why));
  }

 private:
  // None if the size overflows or is not a whole number of bytes. Sizes of a tensor with an empty
  // axis are limited too, because views hold them in 63 bits.
  static std::optional<uint64_t> bytes_needed(const HeaderEntry& entry, int num_bits) {
    uint64_t bits = static_cast<uint64_t>(num_bits);
    bool is_empty = false;
    for (const uint64_t size : entry.shape) {
      if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      is_empty = is_empty || size == 0;
      if (size > 0 && __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
    }
    if (bits > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    if (is_empty) return 0;
    return bits % 8 == 0 ? std::optional(bits / 8) : std::nullopt;
  }

  static std::string list(const HeaderEntry& entry) {
    std::string text = "[";
    for (size_t i = 0; i < entry.shape.size(); ++i) {
      text += concat(i == 0 ? "" : ", ", entry.shape[i]);
    }
    return text + "]";
  }

  uint64_t first_byte_;  // where the data begins, after the header
  uint64_t data_bytes_;
  std::string_view origin_;
};

// In the order of their bytes, the tensors must cover the data without overlap or gap.
void check_tiling(const std::vector<HeaderEntry>& sorted, uint64_t num_bytes,
                  std::string_view origin, const EntryReader& reader) {
  uint64_t next = 0;
  for (const HeaderEntry& entry : sorted) {
    if (entry.begin != next) {
      reader.refuse(entry, concat("begins at byte ", entry.begin, " and the one before it ends at ",
                                  next, entry.begin < next ? ": they overlap" : ": a gap"));
    }
    next = entry.end;
  }
  if (next != num_bytes) {
    fail(concat(origin, ": the tensors end at byte ", next, " of ", num_bytes,
                "; bytes that belong to no tensor are refused"));
  }
}

std::vector<StoredTensor> parse(std::string_view header, uint64_t file_bytes,
                                std::string_view origin) {
  std::vector<HeaderEntry> entries = read_header(header, origin);
  const uint64_t first_byte = kLengthBytes + header.size(), data_bytes = file_bytes - first_byte;
  const EntryReader reader(first_byte, data_bytes, origin);
  std::vector<StoredTensor> tensors;
  tensors.reserve(entries.size());
  std::ranges::stable_sort(entries, [](const HeaderEntry& a, const HeaderEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  for (const HeaderEntry& entry : entries) tensors.push_back(reader.read(entry));
  check_tiling(entries, data_bytes, origin, reader);
  return tensors;
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            std::string_view origin) {
  const size_t length =
      header_length(bytes.first(std::min(kFirstBytes, bytes.size())), bytes.size(), origin);
  return parse(as_text(bytes.subspan(kLengthBytes, length)), bytes.size(), origin);
}

std::vector<StoredTensor> parse_safetensors(const WeightFile& file) {
  const auto file_bytes = static_cast<uint64_t>(file.size_bytes());
  std::array<std::byte, kFirstBytes> first{};
  const std::span start = std::span(first).first(std::min<size_t>(kFirstBytes, file_bytes));
  file.read(0, start);
  std::string header(header_length(start, file_bytes, file.shown_name()), '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(header)));
  return parse(header, file_bytes, file.shown_name());
}

DType loadable_dtype(const StoredTensor& tensor) {
  if (!tensor.dtype) {
    fail(concat("checkpoint: tensor '", shown(tensor.name), "' is ", tensor.type, " of rank ",
                tensor.shape.size(), ", which cannot be loaded; store it as F32, F16 or BF16"));
  }
  return *tensor.dtype;
}

}  // namespace tessera::model
