// Operations on text, run by run and character by character.
// SPDX-License-Identifier: MIT
#include "text/chat/text_ops.h"

#include <cstring>
#include <string>
#include <unordered_set>

#include "core/text.h"
#include "text/unicode.h"

namespace tessera::chat {

size_t find_text(RenderState& state, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // memmem is linear in both lengths, unlike string_view::find.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  const size_t at = found ? static_cast<size_t>(static_cast<const char*>(found) - text.data())
                          : std::string_view::npos;
  state.pay_bytes((found ? at - from : text.size() - from) + needle.size());
  return at;
}

Value sub_text(RenderState& state, const Text& text, size_t begin, size_t end) {
  TextBuilder builder(state);
  builder.append(text, begin, end);
  return builder.take_value();
}

std::vector<size_t> character_offsets(RenderState& state, const Text& text) {
  state.pay_bytes(text.size() * sizeof(size_t));
  std::vector<size_t> offsets;
  const std::string_view bytes = text.bytes();
  for (size_t i = 0; i < bytes.size(); i += unicode::character_at(bytes, i).bytes)
    offsets.push_back(i);
  offsets.push_back(bytes.size());
  return offsets;
}

namespace {

using CharacterSet = std::unordered_set<std::string_view>;

CharacterSet characters_of(RenderState& state, const Text& text) {
  CharacterSet set;
  const std::vector<size_t> offsets = character_offsets(state, text);
  state.pay_elements(offsets.size());
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    set.insert(text.bytes().substr(offsets[i], offsets[i + 1] - offsets[i]));
  }
  return set;
}

struct Range {
  size_t begin;
  size_t end;
};

Range strip_set(RenderState& state, const Text& text, Side side, const Text& characters) {
  const CharacterSet set = characters_of(state, characters);
  const std::vector<size_t> offsets = character_offsets(state, text);
  const auto is_in_set = [&](size_t i) {
    return set.contains(text.bytes().substr(offsets[i], offsets[i + 1] - offsets[i]));
  };
  size_t first = 0;
  size_t last = offsets.size() - 1;
  while (side != Side::right && first < last && is_in_set(first)) ++first;
  while (side != Side::left && first < last && is_in_set(last - 1)) --last;
  return {offsets[first], offsets[last]};
}

Range strip_space(RenderState& state, const Text& text, Side side) {
  state.pay_bytes(text.size());
  const std::string_view bytes = text.bytes();
  Range kept{0, bytes.size()};
  if (side != Side::right) kept.begin = unicode::count_leading_space(bytes);
  if (side != Side::left) kept.end -= unicode::count_trailing_space(bytes.substr(kept.begin));
  return kept;
}

}  // namespace

Value strip(RenderState& state, const TextRef& text, Side side, const Text* set) {
  const Range kept = set ? strip_set(state, *text, side, *set) : strip_space(state, *text, side);
  if (kept.begin == 0 && kept.end == text->size()) return text;
  return sub_text(state, *text, kept.begin, kept.end);
}

namespace {

// Decides the case of each character of a text, in order.
class CaseRule {
 public:
  explicit CaseRule(Case to) : to_(to) {}

  bool wants_upper(char32_t c) {
    const bool was_start = is_start_;
    switch (to_) {
      case Case::upper: return true;
      case Case::lower: return false;
      case Case::capitalize: is_start_ = false; break;
      case Case::title: is_start_ = !unicode::is_cased(c); break;
      case Case::words:
        is_start_ =
            unicode::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
        break;
    }
    return was_start;
  }

 private:
  Case to_;
  bool is_start_ = true;
};

constexpr char32_t kSharpS = 0xdf;  // its upper case is two letters

void append_cased(std::string& out, std::string_view original, char32_t c, bool is_upper,
                  bool is_whole_word) {
  if (c == unicode::kNoCode) {
    out.append(original);
  } else if (!is_upper) {
    unicode::append_character(out, unicode::to_lower(c));
  } else if (c == kSharpS) {
    out.append(is_whole_word ? "SS" : "Ss");
  } else {
    unicode::append_character(out, is_whole_word ? unicode::to_upper(c) : unicode::to_title(c));
  }
}

}  // namespace

Value change_case(RenderState& state, const Text& text, Case to) {
  TextBuilder builder(state);
  CaseRule rule(to);
  const std::string_view bytes = text.bytes();
  size_t position = 0;
  for (const Text::Run& run : text.runs()) {
    state.pay_bytes(run.end - position);
    std::string changed;
    while (position < run.end) {
      const unicode::Character c = unicode::character_at(bytes.substr(0, run.end), position);
      append_cased(changed, bytes.substr(position, c.bytes), c.code, rule.wants_upper(c.code),
                   to == Case::upper);
      position += c.bytes;
    }
    builder.append(changed, run.is_control);
  }
  return builder.take_value();
}

namespace {

// Replacing the empty string inserts `to` before every character and at the end.
Value insert_everywhere(RenderState& state, const Text& text, const Text& to, int64_t count) {
  TextBuilder builder(state);
  const std::vector<size_t> offsets = character_offsets(state, text);
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (count != 0) {
      builder.append(to);
      if (count > 0) --count;
    }
    if (i + 1 < offsets.size()) builder.append(text, offsets[i], offsets[i + 1]);
  }
  return builder.take_value();
}

}  // namespace

Value replace(RenderState& state, const TextRef& text, const Text& from, const Text& to,
              int64_t count) {
  if (from.empty()) return insert_everywhere(state, *text, to, count);
  size_t found = find_text(state, text->bytes(), from.bytes(), 0);
  if (found == std::string_view::npos || count == 0) return text;
  TextBuilder builder(state);
  size_t position = 0;
  while (found != std::string_view::npos && count != 0) {
    builder.append(*text, position, found);
    builder.append(to);
    position = found + from.size();
    found = find_text(state, text->bytes(), from.bytes(), position);
    if (count > 0) --count;
  }
  builder.append(*text, position, text->size());
  return builder.take_value();
}

namespace {

std::vector<Value> split_space(RenderState& state, const Text& text, int64_t max_splits) {
  std::vector<Value> pieces;
  const std::string_view bytes = text.bytes();
  state.pay_bytes(bytes.size());
  size_t position = unicode::count_leading_space(bytes);
  while (position < bytes.size()) {
    if (max_splits >= 0 && static_cast<int64_t>(pieces.size()) == max_splits) {
      pieces.push_back(sub_text(state, text, position, bytes.size()));
      break;
    }
    size_t end = position;
    while (end < bytes.size()) {
      const unicode::Character c = unicode::character_at(bytes, end);
      if (unicode::is_space(c.code)) break;
      end += c.bytes;
    }
    pieces.push_back(sub_text(state, text, position, end));
    position = end + unicode::count_leading_space(bytes.substr(end));
  }
  return pieces;
}

}  // namespace

std::vector<Value> split(RenderState& state, const Text& text, const Text* separator,
                         int64_t max_splits) {
  if (!separator) return split_space(state, text, max_splits);
  if (separator->empty()) state.fail("'split' needs a separator that is not empty");
  std::vector<Value> pieces;
  size_t position = 0;
  while (max_splits < 0 || static_cast<int64_t>(pieces.size()) < max_splits) {
    const size_t found = find_text(state, text.bytes(), separator->bytes(), position);
    if (found == std::string_view::npos) break;
    pieces.push_back(sub_text(state, text, position, found));
    position = found + separator->size();
  }
  pieces.push_back(sub_text(state, text, position, text.size()));
  return pieces;
}

std::vector<Value> split_lines(RenderState& state, const Text& text) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes();
  state.pay_bytes(bytes.size());
  size_t position = 0;
  while (position < bytes.size()) {
    const size_t end = std::min(bytes.find_first_of("\n\r", position), bytes.size());
    lines.push_back(sub_text(state, text, position, end));
    position = end + (bytes.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return lines;
}

}  // namespace tessera::chat
