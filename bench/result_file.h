// The file that results go to, opened before anything is measured.
// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace tessera::bench {

// Opens `path` for writing and refuses, with the reason, one that cannot be written, so that a run
// of an hour does not fail at its end. What the file holds stays there until write() replaces it; a
// file that did not exist and is never written is removed again.
class ResultFile {
 public:
  explicit ResultFile(std::string path);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  // Call once. Fails if not everything could be written, for example to a full disk.
  void write(std::string_view text);

 private:
  [[noreturn]] void refuse() const;

  std::string path_;
  int file_ = -1;
  bool is_new_ = false;
  bool is_written_ = false;
};

}  // namespace tessera::bench
