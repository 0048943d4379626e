// GGUF files: metadata and tensors. Nothing in a header is used before it is checked.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/safetensors.h"

namespace tessera::model {

// A value of the metadata. Integers of every width are int64_t, both float types double.
using GgufValue = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string>>;

struct GgufTensor {
  std::string name;
  int type = 0;                // the number of a BlockType
  std::vector<int64_t> shape;  // rows first, as elsewhere; the file has columns first
  int64_t begin = 0;           // first byte in the file
  int64_t num_bytes = 0;
};

class GgufFile {
 public:
  // Refuses versions other than 2 and 3, counts and lengths beyond the file, names that appear
  // twice, types that are not supported, and tensors that overlap or lie beyond the end. The memory
  // it takes is proportional to the length of the header.
  static GgufFile parse(const WeightFile& file);
  static GgufFile parse(std::span<const std::byte> bytes, std::string_view origin);

  const std::string& origin() const { return origin_; }  // what messages call the file
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find_tensor(std::string_view name) const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }

  // Values by key; none where absent. Refuses a value of another type, naming the key.
  std::optional<int64_t> whole(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  // an integer will do
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const std::vector<std::string>* texts(std::string_view key) const;  // null where absent
  const std::vector<int64_t>* wholes(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  friend class GgufParser;
  template <class T>
  const T* find(std::string_view key, std::string_view what) const;

  std::string origin_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

// Whether a path is a GGUF file by its name, and a regular file.
bool is_gguf(const std::filesystem::path& path);

}  // namespace tessera::model
