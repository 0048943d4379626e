// The JSON header of a safetensors file, read without building a document.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::model {

// What the header says about one tensor, not yet checked against the file.
struct HeaderEntry {
  std::string name;
  std::string type;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // bytes, from the end of the header
  uint64_t end = 0;
};

// In the order of the text. Refuses, naming the tensor, a name or a field that appears twice, a
// field that is missing or unknown, and a value of the wrong type. Memory is proportional to the
// text.
std::vector<HeaderEntry> read_header(std::string_view text, std::string_view origin);

}  // namespace tessera::model
