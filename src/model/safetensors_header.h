// The JSON header of a safetensors file, read without building a document.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

// What the header says of one tensor; nothing of it is compared with the file yet.
struct HeaderEntry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // bytes, from the end of the header
  uint64_t end = 0;
};

// In the order of the text. Refuses, naming the tensor, what is not the format: a name or a field
// twice, a field missing or unknown, a value of another type. Memory is in proportion to the text.
std::vector<HeaderEntry> read_header(std::string_view text, std::string_view origin);

}  // namespace tessera::model
