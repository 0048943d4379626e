// Reading a file of weights: pread, until everything asked for is there.
// SPDX-License-Identifier: MIT
#include "model/weight_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::model {

WeightFile::WeightFile(const std::filesystem::path& path) : name_(shown_path(path.native())) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail(concat(name_, ": cannot open: ", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail(concat(name_, ": is not a regular file"));
  }
  size_bytes_ = status.st_size;
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

}  // namespace tessera::model
