// Operations on text that filters and methods share. Every one keeps where each byte came from.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/chat/render_state.h"

namespace tessera::chat {

// The first place of `needle` at or behind `from`, or npos. Linear time, paid for.
size_t find_text(RenderState& state, std::string_view text, std::string_view needle, size_t from);

enum class Side : uint8_t { both, left, right };
// Without the characters of `set` (whitespace where none) at its ends.
Value strip(RenderState& state, const TextRef& text, Side side, const Text* set);

enum class Case : uint8_t {
  upper,
  lower,
  capitalize,  // the first character upper, the others lower
  title,       // str.title(): the first letter of every run of letters
  words,       // the title filter: the first character behind spaces, '-' and opening brackets
};
Value change_case(RenderState& state, const Text& text, Case to);

// At most `count` replacements; all where negative.
Value replace(RenderState& state, const TextRef& text, const Text& from, const Text& to,
              int64_t count);

// Pieces between `separator`s, or between runs of whitespace where there is none; at most
// `max_splits` cuts unless negative.
std::vector<Value> split(RenderState& state, const Text& text, const Text* separator,
                         int64_t max_splits);
std::vector<Value> split_lines(RenderState& state, const Text& text);

Value sub_text(RenderState& state, const Text& text, size_t begin, size_t end);
// Byte offsets at which characters begin, and the text's size.
std::vector<size_t> character_offsets(RenderState& state, const Text& text);

}  // namespace tessera::chat
