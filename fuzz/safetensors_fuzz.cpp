// Fuzzes the safetensors parser: every view it returns lies within the bytes it was given.
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
      const int64_t num_bytes = storage_bytes(tensor.view.dtype, tensor.view.num_elements());
      fuzz::require(num_bytes >= 0, "a tensor's size is not negative");
      if (num_bytes == 0) continue;
      const auto* begin = static_cast<const std::byte*>(tensor.view.data);
      fuzz::require(begin >= bytes.data() && begin + num_bytes <= bytes.data() + bytes.size(),
                    "a tensor lies within the file");
    }
  } catch (const Error&) {
    // Refused: the ordinary end of a malformed file.
  }
  return 0;
}
