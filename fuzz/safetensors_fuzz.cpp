// Fuzzes the safetensors parser: every tensor it returns lies within the bytes it was given.
// SPDX-License-Identifier: MIT
#include <span>

#include "fuzz/fuzz.h"
#include "model/safetensors.h"
#include "tessera/core/error.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    for (const model::StoredTensor& tensor : model::parse_safetensors(bytes, "input")) {
      fuzz::require(tensor.begin >= 0 && tensor.num_bytes >= 0, "places are not negative");
      fuzz::require(tensor.begin + tensor.num_bytes <= static_cast<int64_t>(size),
                    "a tensor lies within the file");
    }
  } catch (const Error&) {
    // Refused, as a malformed file should be.
  }
  return 0;
}
