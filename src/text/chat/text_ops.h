// Operations on text that filters and methods share. Every one keeps where each byte came from.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/chat/render_state.h"

namespace tessera::chat {

// The first position of `needle` at or after `from`, or npos. Linear time, paid for.
size_t find_text(RenderState& state, std::string_view text, std::string_view needle, size_t from);

enum class Side : uint8_t { both, left, right };
// Removes the characters of `set` (null: whitespace) from the ends.
Value strip(RenderState& state, const TextRef& text, Side side, const Text* set);

enum class Case : uint8_t {
  upper,
  lower,
  capitalize,  // the first character upper, the others lower
  title,       // str.title(): the first letter of every run of letters
  words,       // the title filter: the first character after spaces, '-' and opening brackets
};
Value change_case(RenderState& state, const Text& text, Case to);

// At most `count` replacements; negative: all.
Value replace(RenderState& state, const TextRef& text, const Text& from, const Text& to,
              int64_t count);

// The pieces between separators, or between runs of whitespace if `separator` is null. At most
// `max_splits` cuts; negative: no limit.
std::vector<Value> split(RenderState& state, const Text& text, const Text* separator,
                         int64_t max_splits);
std::vector<Value> split_lines(RenderState& state, const Text& text);

Value sub_text(RenderState& state, const Text& text, size_t begin, size_t end);
// The byte offsets of all characters, then the size of the text.
std::vector<size_t> character_offsets(RenderState& state, const Text& text);

}  // namespace tessera::chat
