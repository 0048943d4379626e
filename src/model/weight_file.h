// A file of weights, read piece by piece.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace tessera::model {

// A regular file held open. It is read, never mapped: a file that shrinks under a mapping ends the
// process by SIGBUS, whereas a read that comes up short is an Error that names the file. Nothing of
// it is needed once weights are loaded. Any number of threads may read at once.
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

}  // namespace tessera::model
