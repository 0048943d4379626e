// Fuzzes the reader of tokenizer.json, and encodes with the tokenizers that it accepts.
// SPDX-License-Identifier: MIT
#include <vector>

#include "fuzz/fuzz.h"
#include "tessera/core/error.h"
#include "tessera/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const Tokenizer tokenizer = Tokenizer::parse(fuzz::as_text(data, size), "input");
    const std::vector<int32_t> ids =
        tokenizer.encode("Hello w\xc3\xb6rld, it's 1234\n\n  \xf0\x9f");
    for (int32_t id : ids) fuzz::require(id >= 0 && id < tokenizer.num_ids(), "ids are in range");
    (void)tokenizer.decode(ids);
  } catch (const Error&) {
    // Refused, as a malformed file should be.
  }
  return 0;
}
