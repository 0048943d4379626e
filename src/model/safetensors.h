// Tensors in safetensors files. Everything is checked before it is believed.
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

#include "model/weight_file.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// A tensor of a file: what it is, and where its elements lie, in row-major order. A file may hold
// tensors that cannot be loaded: of a type such as F64 or BOOL, or of a rank above kMaxRank.
struct StoredTensor {
  std::string name;
  std::string_view type;       // as the file spells it: "BF16"
  std::vector<int64_t> shape;  // as in the file
  std::optional<DType> dtype;  // none: it cannot be loaded
  int64_t begin = 0;           // of its bytes in the file; perhaps misaligned for its type
  int64_t num_bytes = 0;
  const WeightFile* file = nullptr;  // of a Checkpoint, which keeps it
};

// Refuses a tensor that cannot be loaded, naming it, its type and its shape.
DType loadable_dtype(const StoredTensor& tensor);

inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr size_t kMaxStoredRank = 32;

// The tensors of one file's bytes, in the order of their bytes. `origin` is what messages call the
// file. Refuses a header that is too long, is not a JSON object of the format's fields, or repeats
// a name; a type the format does not have; a shape whose size overflows or disagrees with the
// bytes; and bytes that overlap, leave gaps or end before or after the file. Takes memory in
// proportion to the header, whatever the header says.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> bytes,
                                            std::string_view origin);
// The same, with no more than the header read.
std::vector<StoredTensor> parse_safetensors(const WeightFile& file);

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
  // Opens a file and takes its tensors; one that another file has is refused.
  void add_file(const std::filesystem::path& path, const std::string& file_name);
  void add_shards(const std::filesystem::path& folder, const std::filesystem::path& index);

  std::vector<std::unique_ptr<WeightFile>> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> file_of_;  // by tensor, for messages
  int64_t size_bytes_ = 0;
};

}  // namespace tessera::model
