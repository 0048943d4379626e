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

// A tensor of a file. Its view points into the bytes that were parsed, and is read-only. A file may
// hold tensors that ours cannot: of a type such as F64 or BOOL, or of a rank above kMaxRank. Such a
// one is kept with is_loadable false and its plain bytes as the view, and values_of refuses it.
struct StoredTensor {
  std::string name;
  TensorView view;             // contiguous, on the CPU; may be misaligned for its type
  std::string_view type;       // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // as in the file
  bool is_loadable = true;
};

// The view; refuses a tensor that is not loadable, naming it, its type and its shape.
const TensorView& values_of(const StoredTensor& tensor);

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr size_t kMaxStoredRank = 32;

// The tensors of one file's bytes, in the order of their bytes. `origin` is what messages call the
// file. Refuses a header that is too long, is not a JSON object of the format's fields, or repeats
// a name; a type the format does not have; a shape whose size overflows or disagrees with the
// bytes; and bytes that overlap, leave gaps or end before or after the file. Takes memory in
// proportion to the header, whatever the header says.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            std::string_view origin);

// A file in memory without being read: pages arrive when touched. The file must not shrink while it
// is mapped.
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
// lists. Pickled weights are refused by design.
//
// What an index names is confined to the folder: no absolute path, no "..", and no symbolic link
// that leads out. One exception, because it is how Hugging Face keeps its cache: in a folder
// .../snapshots/REVISION a link may lead to .../blobs. A model.safetensors that the user made a
// link is the user's own choice, and is followed.
class Checkpoint {
 public:
  static Checkpoint open(const std::filesystem::path& folder);

  const StoredTensor* find(std::string_view name) const;  // null where there is none
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  int64_t size_bytes() const { return size_bytes_; }  // of all files

 private:
  // Maps a file and takes its tensors; one that another file has is refused.
  void add_file(const std::filesystem::path& path, const std::string& file_name);
  void add_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_;  // by tensor, for messages
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::model
