// Generated tokens as streamed text, cut before the first stop string.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/tokenizer.h"

namespace tessera::text {

// Holds text back while it may be the start of a stop string. The text ends before the stop string
// that is complete first; if several end at the same place, before the longest of them. The result
// does not depend on how the text was cut into pieces.
class StopText {
 public:
  // Adds a piece and appends to `out` what can no longer become part of a stop string. True when a
  // stop string is complete; nothing may be pushed after that. No stop string is empty. `stops` may
  // be empty in the first calls; from the first call on that has some, they stay the same.
  bool push(std::string_view piece, const std::vector<std::string>& stops, std::string& out);
  // Appends what is held back to `out`: the text has ended.
  void flush(std::string& out);

 private:
  std::string held_;  // between calls shorter than the longest stop string
};

// The tokens of one sequence as text. What push and finish append is whole UTF-8 characters.
class TextStream {
 public:
  // The tokenizer must outlive this object.
  explicit TextStream(const Tokenizer& tokenizer, bool keep_special = false)
      : decoder_(tokenizer, keep_special) {}

  // As StopText::push, with the text of `token`.
  bool push(int32_t token, const std::vector<std::string>& stops, std::string& out) {
    return stop_text_.push(decoder_.push(token), stops, out);
  }
  // Ends the sequence and appends what was held back. True when that completes a stop string.
  bool finish(const std::vector<std::string>& stops, std::string& out) {
    if (stop_text_.push(decoder_.finish(), stops, out)) return true;
    stop_text_.flush(out);
    return false;
  }

 private:
  StreamDecoder decoder_;
  StopText stop_text_;
};

}  // namespace tessera::text
