// Files that appear under their name only when they are complete.
// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "quant_model/stored_weight.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

// A file that is written under "NAME.part", brought to the disk and then renamed.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path) : path_(std::move(path)), part_(path_) {
    part_ += ".part";
    descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) refuse("cannot be opened");
  }
  ~NewFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(part_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, size_t num_bytes) {
    const auto* from = static_cast<const char*>(data);
    while (num_bytes > 0) {
      const ssize_t done = ::write(descriptor_, from, num_bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse("cannot be written");
      from += done;
      num_bytes -= static_cast<size_t>(done);
      size_ += done;
    }
  }
  int64_t finish() {
    if (::fsync(descriptor_) != 0) refuse("cannot be written");
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (::close(descriptor) != 0) refuse("cannot be written");
    if (::rename(part_.c_str(), path_.c_str()) != 0) refuse("cannot be renamed");
    return size_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail(concat(shown_path(part_.native()), " ", what, ": ", std::strerror(errno)));
  }

  std::filesystem::path path_, part_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// In pieces that stay in the cache between being read and being written.
void copy_bytes(const model::StoredTensor& stored, NewFile& to) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min<int64_t>(stored.num_bytes, 1 << 20)));
  for (int64_t done = 0; done < stored.num_bytes;) {
    const auto count = static_cast<size_t>(std::min(std::ssize(piece), stored.num_bytes - done));
    stored.file->read(stored.begin + done, std::span(piece).first(count));
    to.write(piece.data(), count);
    done += static_cast<int64_t>(count);
  }
}

}  // namespace

int64_t write_tensors(const std::filesystem::path& path, const std::vector<FileTensor>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t end = 0;
  for (const FileTensor& tensor : tensors) {
    const size_t begin = end;
    end += tensor.num_bytes();
    header[tensor.name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  while ((8 + text.size()) % 64 != 0) text += ' ';  // readers that map the file want alignment
  NewFile file(path);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(text.size() >> 8 * i);
  file.write(length, sizeof(length));
  file.write(text.data(), text.size());
  for (const FileTensor& tensor : tensors) {
    if (tensor.copied != nullptr) {
      copy_bytes(*tensor.copied, file);
    } else {
      file.write(tensor.lent.empty() ? tensor.bytes.data() : tensor.lent.data(),
                 tensor.num_bytes());
    }
  }
  return file.finish();
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  NewFile file(path);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace tessera::quant
