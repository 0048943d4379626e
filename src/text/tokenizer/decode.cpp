// Ids to text, one at a time; decoding all at once is the same thing in a loop.
// SPDX-License-Identifier: MIT
#include <algorithm>

#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode.h"

namespace tessera {

using namespace tokenizer;

std::string Tokenizer::decode(std::span<const int32_t> ids, bool keep_special) const {
  StreamDecoder decoder(*this, keep_special);
  std::string text;
  for (const int32_t id : ids) decoder.append(id, text);
  text += decoder.finish();
  return text;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool keep_special)
    : tokenizer_(&tokenizer),
      keep_special_(keep_special),
      num_to_strip_(tokenizer.impl_->decoder.strip().num_left) {}

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  append(id, text);
  return text;
}

void StreamDecoder::append(int32_t id, std::string& out) {
  const Tokenizer::Impl& impl = *tokenizer_->impl_;
  if (!impl.vocabulary.has(id)) return;
  if (impl.vocabulary.is_special(id) && !keep_special_) return;
  if (!has_token_ && impl.decoder.has_own_first()) {
    MatchBudget budget(impl.vocabulary.text(id).size());
    pending_ +=
        impl.decoder.bytes_of(impl.vocabulary.text(id), true, impl.vocabulary.is_added(id), budget);
  } else {
    pending_ += impl.bytes[static_cast<size_t>(id)];
  }
  has_token_ = true;
  take_whole(false, out);
}

std::string StreamDecoder::finish() {
  std::string text;
  take_whole(true, text);
  const CharacterStrip& strip = tokenizer_->impl_->decoder.strip();
  for (int64_t n = 0; n < strip.num_right && held_.ends_with(strip.character); ++n) {
    held_.resize(held_.size() - strip.character.size());
  }
  text += held_;
  *this = StreamDecoder(*tokenizer_, keep_special_);
  return text;
}

// Moves whole characters out of pending_, less those that are stripped from either end of the text.
void StreamDecoder::take_whole(bool is_end, std::string& out) {
  const CharacterStrip& strip = tokenizer_->impl_->decoder.strip();
  if (strip.character.empty()) {
    unicode::move_whole_characters(pending_, is_end, out);
    return;
  }
  std::string text = std::move(held_);
  held_.clear();
  const size_t num_held = text.size();
  unicode::move_whole_characters(pending_, is_end, text);
  // What is held came through the strip at the left already.
  size_t begin = num_held;
  while (num_to_strip_ > 0 && begin < text.size()) {
    const bool is_stripped = text.compare(begin, strip.character.size(), strip.character) == 0;
    num_to_strip_ = is_stripped ? num_to_strip_ - 1 : 0;
    if (is_stripped) begin += strip.character.size();
  }
  text.erase(num_held, begin - num_held);
  // Up to num_right of the last characters may turn out to be the end.
  size_t end = text.size();
  for (int64_t n = 0; n < strip.num_right; ++n) {
    if (!std::string_view(text).substr(0, end).ends_with(strip.character)) break;
    end -= strip.character.size();
  }
  held_ = text.substr(end);
  out.append(text, 0, end);
}

}  // namespace tessera
