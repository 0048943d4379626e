// Fuzzes the bundled tokenizer: decoding restores the text, and streaming gives the same text.
// SPDX-License-Identifier: MIT
#include <string>
#include <vector>

#include "fuzz/fuzz.h"
#include "tessera/text/tokenizer.h"

namespace {

using namespace tessera;

const Tokenizer& bundled() {
  static const Tokenizer tokenizer =
      Tokenizer::load(TESSERA_SOURCE_DIR "/models/tessera-13m/tokenizer.json");
  return tokenizer;
}

std::string decode_streamed(const std::vector<int32_t>& ids) {
  StreamDecoder decoder(bundled());
  std::string text;
  for (int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  const std::vector<int32_t> ids = bundled().encode(text);
  for (int32_t id : ids) {
    fuzz::require(id >= 0 && id < bundled().num_ids(), "ids are in range");
    fuzz::require(!bundled().is_special(id), "what users write is never a control token");
  }
  const std::string decoded = bundled().decode(ids);
  fuzz::require(decode_streamed(ids) == decoded, "streaming changes nothing");
  // Bytes that are not UTF-8 come back as U+FFFD, which is UTF-8: a second round is exact.
  const std::string again = bundled().decode(bundled().encode(decoded));
  fuzz::require(again == decoded, "decode(encode(x)) == x");

  const TextPart parts[] = {{std::string(text.substr(0, size / 2)), true},
                            {std::string(text.substr(size / 2)), false}};
  fuzz::require(bundled().decode(bundled().encode(parts), true) == decoded,
                "parts say what the whole says");
  return 0;
}
