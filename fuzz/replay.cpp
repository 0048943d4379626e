// Runs a fuzz target over the files of a corpus, each whole and truncated at several places.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

std::vector<uint8_t> bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// An exact copy, so that a sanitizer notices a read beyond the end.
void run(const std::vector<uint8_t>& bytes, size_t size) {
  const std::vector<uint8_t> exact(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  constexpr size_t kCuts = 16;
  size_t num_files = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const std::filesystem::path& file : files) {
      const std::vector<uint8_t> bytes = bytes_of(file);
      run(bytes, bytes.size());
      for (size_t cut = 0; cut < kCuts; ++cut) run(bytes, bytes.size() * cut / kCuts);
      ++num_files;
    }
  }
  std::printf("%zu inputs and %zu cut-off forms of each\n", num_files, kCuts);
  return num_files == 0 ? 1 : 0;  // an empty corpus tests nothing
}
