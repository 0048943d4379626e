// tokenizer.json of a made-up vocabulary.
// SPDX-License-Identifier: MIT
#include "apps/shape_tokenizer.h"

#include <array>
#include <cstdio>
#include <string>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

// The letter that stands for a byte in byte-level vocabularies, as a JSON escape: printable bytes
// are themselves, the others the letters from U+0100 on, in order.
std::string letter_of(int byte) {
  const auto is_plain = [](int value) {
    return (value >= '!' && value <= '~') || (value >= 0xa1 && value <= 0xac) || value >= 0xae;
  };
  int code = byte;
  if (!is_plain(byte)) {
    code = 0x100;
    for (int other = 0; other < byte; ++other) code += is_plain(other) ? 0 : 1;
  }
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "\\u%04x", code);
  return text.data();
}

}  // namespace

Tokenizer make_shape_tokenizer(int64_t vocab) {
  constexpr int64_t kBytes = 256;
  expects(vocab >= kBytes, "a vocabulary for random weights needs at least 256 ids");
  std::string entries;
  const std::string space = letter_of(' ');
  for (int64_t id = 0; id < vocab; ++id) {
    const std::string text = id < kBytes ? letter_of(static_cast<int>(id)) : concat(space, "w", id);
    entries += concat(id == 0 ? "" : ",", "\"", text, "\":", id);
  }
  return Tokenizer::parse(
      concat(R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,)",
             R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
             R"("decoder":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
             R"("model":{"type":"BPE","vocab":{)", entries, R"(},"merges":[]}})"),
      "a random model's vocabulary");
}

}  // namespace tessera::apps
