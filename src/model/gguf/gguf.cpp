// The GGUF header: counts, keys with typed values, tensors, and where their bytes are.
// SPDX-License-Identifier: MIT
#include "model/gguf/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "core/text.h"
#include "model/formats/gguf_blocks.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

constexpr size_t kWindowBytes = size_t{1} << 20;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxText = 1 << 24;
constexpr uint64_t kMaxAxes = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;

enum class Type : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64,
};

uint64_t size_of(Type type) {
  switch (type) {
    case Type::u8:
    case Type::i8:
    case Type::boolean: return 1;
    case Type::u16:
    case Type::i16: return 2;
    case Type::u32:
    case Type::i32:
    case Type::f32: return 4;
    case Type::text: return 8;  // at least: its length
    default: return 8;
  }
}

// Bytes in order, of a file or of memory; a file is read in windows.
class Bytes {
 public:
  Bytes(const WeightFile* file, std::span<const std::byte> memory, std::string origin)
      : file_(file),
        window_(memory),
        size_(file != nullptr ? static_cast<uint64_t>(file->size_bytes()) : memory.size()),
        origin_(std::move(origin)) {}

  uint64_t at() const { return at_; }
  uint64_t size() const { return size_; }
  uint64_t left() const { return size_ - at_; }
  const std::string& origin() const { return origin_; }

  // The next `count` bytes, valid until the next call.
  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > left()) {
      fail(concat(origin_, ": ", what, " needs ", count, " bytes at byte ", at_,
                  ", and the file ends at ", size_, "; it is cut off or damaged: fetch it again"));
    }
    if (at_ < begin_ || at_ + count > begin_ + window_.size()) refill(count);
    const std::span taken =
        window_.subspan(static_cast<size_t>(at_ - begin_), static_cast<size_t>(count));
    at_ += count;
    return taken;
  }

  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  std::string text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    if (length > kMaxText) {
      fail(concat(origin_, ": ", what, " has ", length, " bytes; at most ", kMaxText, " are read"));
    }
    const auto bytes = take(length, what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  void refill(uint64_t count) {
    const uint64_t wanted = std::min(size_ - at_, std::max<uint64_t>(count, kWindowBytes));
    buffer_.resize(static_cast<size_t>(wanted));
    file_->read(static_cast<int64_t>(at_), buffer_);
    window_ = buffer_;
    begin_ = at_;
  }

  const WeightFile* file_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> window_;
  uint64_t begin_ = 0;  // of the window
  uint64_t at_ = 0;
  uint64_t size_;
  std::string origin_;
};

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(Bytes bytes) : bytes_(std::move(bytes)) {}

  GgufFile run() {
    file_.origin_ = bytes_.origin();
    const auto magic = bytes_.take(4, "the magic");
    if (std::memcmp(magic.data(), "GGUF", 4) != 0) {
      fail(concat(bytes_.origin(), ": does not begin with GGUF; it is no GGUF file"));
    }
    const auto version = bytes_.number<uint32_t>("the version");
    if (version != 2 && version != 3) {
      fail(concat(bytes_.origin(), ": has version ", version,
                  "; versions 2 and 3 are supported: convert the model again"));
    }
    const auto num_tensors = bytes_.number<uint64_t>("the number of tensors");
    const auto num_keys = bytes_.number<uint64_t>("the number of keys");
    check_count("tensors", num_tensors, kMaxTensors);
    check_count("keys", num_keys, kMaxKeys);
    for (uint64_t i = 0; i < num_keys; ++i) read_key();
    for (uint64_t i = 0; i < num_tensors; ++i) read_tensor();
    place_tensors();
    return std::move(file_);
  }

 private:
  void check_count(std::string_view what, uint64_t count, uint64_t most) const {
    if (count <= most) return;
    fail(concat(bytes_.origin(), ": has ", count, " ", what, "; at most ", most, " are read"));
  }

  void read_key() {
    const std::string key = bytes_.text("a key");
    const Type type = read_type(key);
    GgufValue value = type == Type::array ? read_array(key) : read_value(type, key);
    if (!file_.metadata_.emplace(key, std::move(value)).second) {
      fail(concat(bytes_.origin(), ": key '", shown(key), "' appears twice"));
    }
  }

  Type read_type(std::string_view key) {
    const auto type = bytes_.number<uint32_t>("a type");
    if (type > static_cast<uint32_t>(Type::f64)) {
      fail(concat(bytes_.origin(), ": key '", shown(key), "' has the unknown type ", type));
    }
    return static_cast<Type>(type);
  }

  GgufValue read_value(Type type, std::string_view key) {
    switch (type) {
      case Type::f32: return static_cast<double>(bytes_.number<float>(key));
      case Type::f64: return bytes_.number<double>(key);
      case Type::boolean: return bytes_.number<uint8_t>(key) != 0;
      case Type::text: return bytes_.text(shown(key));
      default: return read_whole(type, key);
    }
  }

  int64_t read_whole(Type type, std::string_view key) {
    switch (type) {
      case Type::u8: return bytes_.number<uint8_t>(key);
      case Type::i8: return bytes_.number<int8_t>(key);
      case Type::u16: return bytes_.number<uint16_t>(key);
      case Type::i16: return bytes_.number<int16_t>(key);
      case Type::u32: return bytes_.number<uint32_t>(key);
      case Type::i32: return bytes_.number<int32_t>(key);
      default: return std::bit_cast<int64_t>(bytes_.number<uint64_t>(key));
    }
  }

  GgufValue read_array(std::string_view key) {
    const Type type = read_type(key);
    const auto count = bytes_.number<uint64_t>("a length");
    if (type == Type::array) {
      fail(concat(bytes_.origin(), ": key '", shown(key),
                  "' is an array of arrays, which is not "
                  "supported"));
    }
    if (count > bytes_.left() / size_of(type)) {
      fail(concat(bytes_.origin(), ": key '", shown(key), "' has ", count, " elements, and ",
                  bytes_.left(), " bytes are left; the file is cut off or damaged"));
    }
    if (type == Type::text) {
      std::vector<std::string> texts;
      for (uint64_t i = 0; i < count; ++i) texts.push_back(bytes_.text(shown(key)));
      return texts;
    }
    if (type == Type::f32 || type == Type::f64) {
      std::vector<double> numbers;
      for (uint64_t i = 0; i < count; ++i) {
        numbers.push_back(std::get<double>(read_value(type, key)));
      }
      return numbers;
    }
    std::vector<int64_t> wholes;
    for (uint64_t i = 0; i < count; ++i) {
      wholes.push_back(type == Type::boolean ? bytes_.number<uint8_t>(key) : read_whole(type, key));
    }
    return wholes;
  }

  void read_tensor() {
    GgufTensor tensor{.name = bytes_.text("the name of a tensor"), .shape = {}};
    const auto refuse = [&](const std::string& why) {
      fail(concat(bytes_.origin(), ": tensor '", shown(tensor.name), "' ", why));
    };
    const auto axes = bytes_.number<uint32_t>("the axes of a tensor");
    if (axes < 1 || axes > kMaxAxes) refuse(concat("has ", axes, " axes; it must have 1 to 4"));
    uint64_t count = 1;
    for (uint32_t i = 0; i < axes; ++i) {
      const auto size = bytes_.number<uint64_t>("a shape");
      if (size > (uint64_t{1} << 62) || __builtin_mul_overflow(count, size, &count) ||
          count > (uint64_t{1} << 58)) {
        refuse("has a shape whose size overflows");
      }
      tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
    }
    const auto number = bytes_.number<uint32_t>("a type of elements");
    const BlockType* type = number < 1024 ? find_block_type(static_cast<int>(number)) : nullptr;
    if (type == nullptr) {
      std::string all;
      for (const BlockType& one : block_types()) all += concat(all.empty() ? "" : ", ", one.name);
      refuse(concat("has elements of type number ", number, "; supported are ", all));
    }
    if (tensor.shape.back() % type->num_elements != 0) {
      refuse(concat("has rows of ", tensor.shape.back(),
                    " elements, which are not whole blocks of ", type->name));
    }
    tensor.type = type->number;
    tensor.num_bytes = static_cast<int64_t>(count) / type->num_elements * type->num_bytes;
    const auto begin = bytes_.number<uint64_t>("the place of a tensor");
    if (begin > bytes_.size()) {
      refuse(concat("begins at byte ", begin, " of the data, and the file has ", bytes_.size()));
    }
    tensor.begin = static_cast<int64_t>(begin);
    if (!names_.insert(tensor.name).second) refuse("appears twice");
    file_.tensors_.push_back(std::move(tensor));
  }

  // Offsets count from the end of the header, rounded up.
  void place_tensors() {
    const auto alignment = static_cast<uint64_t>(file_.whole("general.alignment").value_or(32));
    if (alignment == 0 || alignment > kMaxAlignment || alignment % 8 != 0) {
      file_.refuse("general.alignment",
                   concat("is ", static_cast<int64_t>(alignment), "; it must be a multiple of 8"));
    }
    const uint64_t data = (bytes_.at() + alignment - 1) / alignment * alignment;
    std::vector<const GgufTensor*> sorted;
    for (GgufTensor& tensor : file_.tensors_) {
      const auto begin = static_cast<uint64_t>(tensor.begin);
      const auto end = data + begin + static_cast<uint64_t>(tensor.num_bytes);
      if (begin % alignment != 0 || end > bytes_.size()) {
        fail(concat(bytes_.origin(), ": tensor '", shown(tensor.name), "' lies in bytes [",
                    data + begin, ", ", end, ") of ", bytes_.size(),
                    begin % alignment != 0 ? ", which is not aligned"
                                           : "; the file is cut off: fetch it again"));
      }
      tensor.begin = static_cast<int64_t>(data + begin);
      sorted.push_back(&tensor);
    }
    std::ranges::sort(sorted, {}, &GgufTensor::begin);
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i - 1]->begin + sorted[i - 1]->num_bytes <= sorted[i]->begin) continue;
      if (sorted[i - 1]->num_bytes == 0 || sorted[i]->num_bytes == 0) continue;
      fail(concat(bytes_.origin(), ": tensors '", shown(sorted[i - 1]->name), "' and '",
                  shown(sorted[i]->name), "' overlap at byte ", sorted[i]->begin));
    }
  }

  Bytes bytes_;
  GgufFile file_;
  std::set<std::string, std::less<>> names_;
};

GgufFile GgufFile::parse(const WeightFile& file) {
  return GgufParser(Bytes(&file, {}, file.shown_name())).run();
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string_view origin) {
  return GgufParser(Bytes(nullptr, bytes, std::string(origin))).run();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &GgufTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void GgufFile::refuse(std::string_view key, std::string_view why) const {
  fail(concat(origin_, ": ", key, " ", why));
}

template <class T>
const T* GgufFile::find(std::string_view key, std::string_view what) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second);
  if (value == nullptr) refuse(key, concat("has another type; it must be ", what));
  return value;
}

std::optional<int64_t> GgufFile::whole(std::string_view key) const {
  const int64_t* value = find<int64_t>(key, "an integer");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end() && std::holds_alternative<int64_t>(found->second)) {
    return static_cast<double>(std::get<int64_t>(found->second));
  }
  const double* value = find<double>(key, "a number");
  if (value != nullptr && !std::isfinite(*value)) refuse(key, "is not finite");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const bool* value = find<bool>(key, "true or false");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const std::string* value = find<std::string>(key, "a string");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::vector<std::string>* GgufFile::texts(std::string_view key) const {
  return find<std::vector<std::string>>(key, "a list of strings");
}

const std::vector<int64_t>* GgufFile::wholes(std::string_view key) const {
  return find<std::vector<int64_t>>(key, "a list of integers");
}

const std::vector<double>* GgufFile::numbers(std::string_view key) const {
  return find<std::vector<double>>(key, "a list of numbers");
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code error;
  return path.extension() == ".gguf" && std::filesystem::is_regular_file(path, error);
}

}  // namespace tessera::model
