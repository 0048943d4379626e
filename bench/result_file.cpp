// A file opened early and written late.
// SPDX-License-Identifier: MIT
#include "bench/result_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::bench {

ResultFile::ResultFile(std::string path) : path_(std::move(path)) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC;
  constexpr mode_t kMode = 0666;  // less what the process's mask takes away
  file_ = open(path_.c_str(), kFlags | O_EXCL, kMode);
  is_new_ = file_ >= 0;
  if (file_ < 0 && errno == EEXIST) file_ = open(path_.c_str(), kFlags, kMode);
  if (file_ < 0) refuse();
}

ResultFile::~ResultFile() {
  if (file_ >= 0) close(file_);
  if (is_new_ && !is_written_) unlink(path_.c_str());
}

void ResultFile::refuse() const {
  throw Error(concat("results cannot be written to ", path_, ": ", std::strerror(errno)));
}

void ResultFile::write(std::string_view text) {
  is_written_ = true;
  // A pipe or a terminal has no length to cut.
  if (ftruncate(file_, 0) != 0 && errno != EINVAL) refuse();
  while (!text.empty()) {
    const ssize_t count = ::write(file_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse();
    text.remove_prefix(static_cast<size_t>(count));
  }
  const int file = std::exchange(file_, -1);
  if (close(file) != 0) refuse();
}

}  // namespace tessera::bench
