// Fuzzes the reader of GGUF files: every tensor it returns lies within the bytes it was given, and
// the configuration and the tokenizer that it makes are refused or usable.
// SPDX-License-Identifier: MIT
#include <cstring>
#include <span>

#include "fuzz/fuzz.h"
#include "model/gguf/gguf_model.h"
#include "tessera/core/error.h"
#include "tessera/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try {
    const model::GgufFile gguf = model::GgufFile::parse(bytes, "input");
    for (const model::GgufTensor& tensor : gguf.tensors()) {
      fuzz::require(tensor.begin >= 0 && tensor.num_bytes >= 0, "places are not negative");
      fuzz::require(tensor.begin + tensor.num_bytes <= static_cast<int64_t>(size),
                    "a tensor lies within the file");
      fuzz::require(!model::gguf_tensor_name(tensor.name).empty(), "a tensor has a name");
    }
    const auto read = [&](int64_t begin, std::span<std::byte> to) {
      fuzz::require(begin >= 0 && static_cast<size_t>(begin) + to.size() <= size,
                    "only bytes of the file are read");
      if (!to.empty()) std::memcpy(to.data(), data + begin, to.size());
    };
    try {
      const model::ModelConfig config = model::gguf_config(gguf, read);
      fuzz::require(config.num_parameters() > 0, "a model has parameters");
    } catch (const Error&) {
      // Metadata of no model that is supported; the tokenizer may still be one.
    }
    const Tokenizer tokenizer = Tokenizer::parse(model::gguf_tokenizer_json(gguf), "input");
    for (const int32_t id : tokenizer.encode("Hello w\xc3\xb6rld")) {
      fuzz::require(id >= 0 && id < tokenizer.num_ids(), "ids are in range");
    }
  } catch (const Error&) {
    // Refused, as a malformed file should be.
  }
  return 0;
}
