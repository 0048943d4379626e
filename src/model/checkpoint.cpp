// Which files make up a checkpoint, and the tensors in them.
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "core/read_file.h"
#include "core/text.h"
#include "model/bounded_json.h"
#include "model/config_fields.h"
#include "model/formats/gguf_blocks.h"
#include "model/gguf/gguf_model.h"
#include "model/safetensors.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndexBytes = 64 << 20;
constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

bool is_within(const fs::path& path, const fs::path& folder) {
  const auto [end, unused] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

// Where the links of a Hugging Face cache lead: the blobs beside the snapshots.
bool is_cached_blob(const fs::path& path, const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" &&
         path.parent_path() == snapshots.parent_path() / "blobs";
}

// The file that an index names; refused if it is outside the folder.
fs::path shard_path(const fs::path& folder, const std::string& name, const fs::path& index) {
  const fs::path relative(name);
  const bool climbs = std::ranges::find(relative, fs::path("..")) != relative.end();
  if (name.empty() || name.find('\0') != std::string::npos || relative.is_absolute() || climbs) {
    fail(concat(shown_path(index.native()), ": names the shard '", shown(name),
                "'; a shard is a file of the model's own folder"));
  }
  const fs::path path = folder / relative;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    fail(concat(shown_path(path.native()), ": is listed in ", kIndex,
                " and is not there; fetch it"));
  }
  const fs::path root = fs::canonical(folder, error);
  const fs::path target = fs::canonical(path, error);
  if (error || !(is_within(target, root) || is_cached_blob(target, root))) {
    fail(concat(shown_path(path.native()), ": is a link that leads out of the model's folder, to ",
                shown_path(target.native()), "; put the file itself there"));
  }
  return path;
}

bool is_pickled(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt";
}

// Reports what the folder has instead of weights.
[[noreturn]] void refuse_folder(const fs::path& folder) {
  std::string stray, gguf, pickled;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".safetensors") stray = path.filename().string();
    if (path.extension() == ".gguf") gguf = path.filename().string();
    if (is_pickled(path)) pickled = path.filename().string();
  }
  if (!stray.empty()) {
    fail(concat(shown_path(folder.native()), ": has ", shown(stray), " and neither ", kSingle,
                " nor ", kIndex, "; a single file takes the first name, shards need the index"));
  }
  if (!pickled.empty()) {
    fail(concat(shown_path(folder.native()), ": has only pickled weights (", shown(pickled),
                "), which can run code when opened and are refused; convert them with "
                "transformers: save_pretrained(folder, safe_serialization=True)"));
  }
  if (!gguf.empty()) {
    fail(concat(shown_path(folder.native()), ": has ", shown(gguf),
                " and no safetensors; give the .gguf file itself"));
  }
  fail(concat(shown_path(folder.native()), ": has no weights; looked for ", kSingle, " and ",
              kIndex));
}

}  // namespace

WeightFile::WeightFile(const std::filesystem::path& path) : name_(shown_path(path.native())) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(concat(name_, ": cannot open: ", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(concat(name_, ": is not a regular file"));
  }
  size_bytes_ = status.st_size;
  // A hint: what is not in the page cache is read ahead in longer runs.
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

WeightFile::~WeightFile() { ::close(descriptor_); }

void WeightFile::read(int64_t begin, std::span<std::byte> to) const {
  for (size_t done = 0; done < to.size();) {
    const int64_t at = begin + static_cast<int64_t>(done);
    const ssize_t got = ::pread(descriptor_, to.data() + done, to.size() - done, at);
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0) {
      fail(concat(name_, ": ends at byte ", at, " and had ", size_bytes_,
                  " bytes when it was opened; something cut it while it was read: fetch it again, "
                  "and load it when nothing writes to it"));
    } else if (errno != EINTR) {
      fail(concat(name_, ": cannot read at byte ", at, ": ", std::strerror(errno)));
    }
  }
}

void Checkpoint::add_file(const fs::path& path, const std::string& file_name) {
  files_.push_back(std::make_unique<WeightFile>(path));
  const WeightFile& file = *files_.back();
  size_bytes_ += file.size_bytes();
  for (StoredTensor& tensor : parse_safetensors(file)) {
    add_tensor(std::move(tensor), file, file_name);
  }
}

void Checkpoint::add_tensor(StoredTensor tensor, const WeightFile& file,
                            const std::string& file_name) {
  tensor.file = &file;
  const auto [owner, is_new] = file_of_.emplace(tensor.name, file_name);
  if (!is_new) {
    fail(concat(file.shown_name(), ": tensor '", shown(tensor.name), "' is also in ",
                shown(owner->second)));
  }
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
}

void Checkpoint::add_gguf(const fs::path& path) {
  files_.push_back(std::make_unique<WeightFile>(path));
  const WeightFile& file = *files_.back();
  size_bytes_ += file.size_bytes();
  const GgufFile gguf = GgufFile::parse(file);
  for (const GgufTensor& from : gguf.tensors()) {
    const BlockType& type = block_type(from.type);
    StoredTensor tensor{.name = gguf_tensor_name(from.name),
                        .type = type.name,
                        .shape = from.shape,
                        .dtype = type.dtype,
                        .begin = from.begin,
                        .num_bytes = from.num_bytes};
    add_tensor(std::move(tensor), file, path.filename().string());
  }
}

void Checkpoint::add_shards(const fs::path& folder, const fs::path& index) {
  const nlohmann::json document =
      parse_json(read_file(index, kMaxIndexBytes), shown_path(index.native()));
  const Fields fields(document, concat(shown_path(index.native()), ": "));
  const nlohmann::json* map = fields.find("weight_map");
  if (map == nullptr) fields.refuse_missing("weight_map");
  if (!map->is_object()) fields.refuse("weight_map", *map, "an object of file names");
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string())
      fields.refuse(concat("weight_map.", shown(tensor)), shard, "a file name");
    shards.insert(shard.get<std::string>());
  }
  for (const std::string& shard : shards) add_file(shard_path(folder, shard, index), shard);
  for (const auto& [tensor, shard] : map->items()) {
    const auto owner = file_of_.find(tensor);
    const auto& said = shard.get_ref<const std::string&>();
    if (owner != file_of_.end() && owner->second == said) continue;
    const std::string where =
        owner == file_of_.end() ? "no shard has it" : shown(owner->second) + " has it";
    fail(concat(shown_path(index.native()), ": tensor '", shown(tensor), "' is said to be in ",
                shown(said), ", and ", where, "; fetch index and shards of one revision"));
  }
}

Checkpoint Checkpoint::open(const fs::path& folder) {
  std::error_code error;
  Checkpoint checkpoint;
  if (is_gguf(folder)) {
    checkpoint.add_gguf(folder);
    return checkpoint;
  }
  if (!fs::is_directory(folder, error)) {
    fail(concat(shown_path(folder.native()),
                ": is not a folder; give the folder of a Hugging Face model, or a .gguf file"));
  }
  // The order of Hugging Face: a single file first.
  if (fs::exists(folder / kSingle, error)) {
    checkpoint.add_file(folder / kSingle, std::string(kSingle));
  } else if (fs::exists(folder / kIndex, error)) {
    checkpoint.add_shards(folder, folder / kIndex);
  } else {
    refuse_folder(folder);
  }
  return checkpoint;
}

Checkpoint Checkpoint::open_file(const fs::path& path) {
  Checkpoint checkpoint;
  checkpoint.add_file(path, path.filename().string());
  return checkpoint;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace tessera::model
