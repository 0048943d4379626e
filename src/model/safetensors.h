// Tensors in safetensors files, memory-mapped. Everything is checked before it is believed.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/tensor.h"

namespace tessera::model {

// A tensor of a file: its view points into the bytes that were parsed, and is read-only.
struct StoredTensor {
  std::string name;
  TensorView view;  // contiguous, on the CPU; may be misaligned for its type
};

// The tensors of one file's bytes, in file order. `origin` is what messages call the file. Refuses
// a header that is too long, is not a JSON object, or repeats a name; a type that is unknown; a
// shape whose size overflows or disagrees with the bytes; and bytes that overlap, leave gaps or end
// before or after the file. Types other than f32, f16, bf16 and the integers are skipped over only
// in the sense that load refuses them by name when they are asked for.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            std::string_view origin);

// A file in memory without being read: pages arrive when touched.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// All tensors of a model folder: model.safetensors, or the shards model.safetensors.index.json
// lists. Shards are confined to the folder. Pickled weights are refused by design.
class Checkpoint {
 public:
  static Checkpoint open(const std::filesystem::path& folder);

  const StoredTensor* find(std::string_view name) const;  // null where there is none
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::model
