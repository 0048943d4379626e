// Tensors in safetensors files. Nothing in a header is used before it is checked.
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
#include <vector>

#include "tessera/core/tensor.h"

namespace tessera::model {

// A regular file held open. It is read, not mapped: if a mapped file shrinks, the process dies of
// SIGBUS, whereas a short read is an Error that names the file. Weights keep no reference to it
// once they are loaded. Any number of threads may read at once.
class WeightFile {
 public:
  explicit WeightFile(const std::filesystem::path& path);
  ~WeightFile();
  WeightFile(const WeightFile&) = delete;
  WeightFile& operator=(const WeightFile&) = delete;

  int64_t size_bytes() const { return size_bytes_; }       // when it was opened
  const std::string& shown_name() const { return name_; }  // as messages have it

  // Bytes [begin, begin + to.size()), which lie within size_bytes().
  void read(int64_t begin, std::span<std::byte> to) const;

 private:
  std::string name_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

// A tensor of a file: its type and shape, and where its elements are, in row-major order. A file
// may hold tensors that cannot be loaded: of a type such as F64 or BOOL, or of a rank above
// kMaxRank.
struct StoredTensor {
  std::string name;
  std::string_view type;       // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // as in the file
  std::optional<DType> dtype;  // none: it cannot be loaded
  int64_t begin = 0;           // first byte in the file; may be misaligned for the type
  int64_t num_bytes = 0;
  const WeightFile* file = nullptr;  // owned by the Checkpoint
};

// Refuses a tensor that cannot be loaded, naming it, its type and its shape.
DType loadable_dtype(const StoredTensor& tensor);

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr size_t kMaxStoredRank = 32;

// The tensors of one file's bytes, in the order of their bytes. `origin` is what messages call the
// file. Refuses a header that is too long, is not a JSON object of the format's fields, or repeats
// a name; a type the format does not have; a shape whose size overflows or disagrees with the
// bytes; and bytes that overlap, leave gaps or end before or after the file. The memory it takes is
// proportional to the length of the header, whatever the header claims.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            std::string_view origin);
// The same, reading only the header.
std::vector<StoredTensor> parse_safetensors(const WeightFile& file);

// All tensors of a model folder: model.safetensors, or the shards model.safetensors.index.json
// lists. Pickled weights are refused by design.
//
// Files named by an index must lie in the folder: no absolute path, no "..", and no symbolic link
// to the outside. One exception, for Hugging Face's cache: in a folder .../snapshots/REVISION a
// link may point to .../blobs. A model.safetensors that is itself a link is followed: the user made
// it.
class Checkpoint {
 public:
  // A folder, or a GGUF file, whose tensors get the names that a folder would have for them.
  static Checkpoint open(const std::filesystem::path& folder);
  static Checkpoint open_file(const std::filesystem::path& path);  // the tensors of one file

  const StoredTensor* find(std::string_view name) const;  // null where there is none
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  int64_t size_bytes() const { return size_bytes_; }  // of all files

 private:
  // Opens a file and adds its tensors; refuses a name that another file has.
  void add_file(const std::filesystem::path& path, const std::string& file_name);
  void add_shards(const std::filesystem::path& folder, const std::filesystem::path& index);
  void add_gguf(const std::filesystem::path& path);
  void add_tensor(StoredTensor tensor, const WeightFile& file, const std::string& file_name);

  std::vector<std::unique_ptr<WeightFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_;  // by tensor name, for messages
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::model
