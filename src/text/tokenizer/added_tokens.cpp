// Reads and finds added tokens.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "core/text.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kMaxTokenBytes = 512;

// The character before a position. If the bytes are not UTF-8 it is U+FFFD, which is neither a word
// character nor white space.
unicode::Character character_before(std::string_view text, size_t pos) {
  for (size_t bytes = 1; bytes <= std::min(pos, size_t{4}); ++bytes) {
    const unicode::Character last = unicode::read_character(text.substr(pos - bytes, bytes));
    if (last.is_valid() && last.bytes == bytes) return last;
  }
  return {0xFFFD, 1, unicode::Utf8::invalid};
}

unicode::Character character_after(std::string_view text, size_t pos) {
  const unicode::Character next = unicode::read_character(text.substr(pos));
  return next.is_valid() ? next : unicode::Character{0xFFFD, 1, unicode::Utf8::invalid};
}

bool stands_alone(std::string_view text, TextRange range) {
  const bool touches_left =
      range.begin > 0 && unicode::is_word(character_before(text, range.begin).code);
  const bool touches_right =
      range.end < text.size() && unicode::is_word(character_after(text, range.end).code);
  return !touches_left && !touches_right;
}

// The range extended by the white space it absorbs, back to `begin` at most.
TextRange stripped(const AddedToken& token, std::string_view text, TextRange range, size_t begin) {
  while (token.strips_left && range.begin > begin) {
    const unicode::Character last = character_before(text, range.begin);
    if (!unicode::is_whitespace(last.code)) break;
    range.begin -= last.bytes;
  }
  while (token.strips_right && range.end < text.size()) {
    const unicode::Character next = character_after(text, range.end);
    if (!unicode::is_whitespace(next.code)) break;
    range.end += next.bytes;
  }
  return range;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const FileNode& root) {
  std::vector<AddedToken> tokens;
  const std::optional<FileNode> list = root.find("added_tokens");
  if (!list) return tokens;
  for (const FileNode& node : list->items()) {
    AddedToken token;
    token.id = node.at("id").integer();
    token.content = node.at("content").text();
    token.is_special = node.flag("special", false);
    token.is_normalized = node.flag("normalized", !token.is_special);
    token.is_single_word = node.flag("single_word", false);
    token.strips_left = node.flag("lstrip", false);
    token.strips_right = node.flag("rstrip", false);
    if (token.content.size() > kMaxTokenBytes) {
      node.refuse(concat("has ", token.content.size(), " bytes; an added token has at most ",
                         kMaxTokenBytes));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenFinder::TokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& token : tokens_) {
    is_first_byte_[static_cast<uint8_t>(token.content[0])] = true;
  }
}

// Special tokens must end by control_end.
const AddedToken* TokenFinder::longest_at(std::string_view text, size_t pos,
                                          size_t control_end) const {
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin();
  auto end = tokens_.end();
  for (size_t depth = 0; begin != end; ++depth) {
    // All of [begin, end) match the text so far. The shortest comes first, and may end here.
    while (begin != end && begin->content.size() == depth) {
      if (!begin->is_special || pos + depth <= control_end) longest = &*begin;
      ++begin;
    }
    if (pos + depth == text.size()) break;
    const auto byte_at = [&](const AddedToken& token) {
      return static_cast<uint8_t>(token.content[depth]);
    };
    const auto agreeing =
        std::ranges::equal_range(begin, end, static_cast<uint8_t>(text[pos + depth]), {}, byte_at);
    begin = agreeing.begin();
    end = agreeing.end();
  }
  return longest;
}

void TokenFinder::split(std::string_view text, std::span<const TextRange> control,
                        const std::function<void(TextRange)>& on_text,
                        const std::function<void(int32_t)>& on_token) const {
  size_t done = 0;
  auto range = control.begin();
  for (size_t pos = 0; pos < text.size();) {
    if (!is_first_byte_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    while (range != control.end() && range->end <= pos) ++range;
    const bool is_control = range != control.end() && range->begin <= pos;
    const AddedToken* token = longest_at(text, pos, is_control ? range->end : 0);
    if (token == nullptr) {
      ++pos;
      continue;
    }
    const TextRange literal{pos, pos + token->content.size()};
    pos = literal.end;
    if (token->is_single_word && !stands_alone(text, literal)) continue;
    const TextRange taken = stripped(*token, text, literal, done);
    if (taken.begin > done) on_text({done, taken.begin});
    on_token(static_cast<int32_t>(token->id));
    // Search on from the end of the literal: white space this token absorbed may begin another.
    done = std::max(done, taken.end);
  }
  if (done < text.size()) on_text({done, text.size()});
}

}  // namespace tessera::tokenizer
