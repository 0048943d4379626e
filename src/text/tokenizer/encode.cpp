// Text to ids: added tokens, normalizer, pre-tokenizer, model.
// SPDX-License-Identifier: MIT
#include <utility>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/tokenizer_impl.h"
#include "text/unicode.h"

namespace tessera {
namespace {

using namespace tokenizer;

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // places in a word are 32-bit

void check_length(size_t bytes) {
  if (bytes <= kMaxTextBytes) return;
  fail(concat("tokenizer: the text has ", bytes, " bytes; at most ", kMaxTextBytes,
              " are encoded at once"));
}

// One text on its way through the parts of a tokenizer.
template <class Impl>
class Encoding {
 public:
  Encoding(const Impl& impl, std::string_view text)
      : impl_(impl), text_(text), budget_(text.size()), workspace_(text.size()) {}

  std::vector<int32_t> run(std::span<const TextRange> control) {
    impl_.written_tokens.split(
        text_, control, [&](TextRange range) { add_written(range); },
        [&](int32_t id) { ids_.push_back(id); });
    return std::move(ids_);
  }

 private:
  // Text between tokens, cut where it is not UTF-8.
  void add_written(TextRange range) {
    for (size_t pos = range.begin; pos < range.end;) {
      const unicode::Utf8Run run = unicode::first_run(text_.substr(pos, range.end - pos));
      const Piece piece{.text = text_.substr(pos, run.bytes),
                        .is_first = pos == 0,
                        .continues = pos > range.begin,
                        .is_valid = run.is_valid};
      if (run.is_valid) {
        add_valid(piece);
      } else {
        add_piece(piece);
      }
      pos += run.bytes;
    }
  }

  void add_valid(Piece piece) {
    if (impl_.normalizer.is_identity()) {
      add_piece(piece);
      return;
    }
    const std::string text = impl_.normalizer.apply(piece.text, piece.continues, budget_);
    impl_.normalized_tokens.split(
        text, {},
        [&](TextRange range) {
          add_piece({.text = std::string_view(text).substr(range.begin, range.end - range.begin),
                     .is_first = piece.is_first && range.begin == 0,
                     .continues = piece.continues && range.begin == 0});
        },
        [&](int32_t id) { ids_.push_back(id); });
  }

  void add_piece(const Piece& piece) {
    impl_.pre_tokenizer.split(piece, budget_, [&](const Piece& word) {
      if (word.is_valid) {
        impl_.bpe.encode(word.text, workspace_, ids_);
      } else {
        impl_.bpe.encode_bytes(word.text, ids_);
      }
    });
  }

  const Impl& impl_;
  std::string_view text_;
  MatchBudget budget_;
  Bpe::Workspace workspace_;
  std::vector<int32_t> ids_;
};

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  check_length(text.size());
  return Encoding(*impl_, text).run({});
}

std::vector<int32_t> Tokenizer::encode(std::span<const TextPart> parts) const {
  std::string text;
  std::vector<TextRange> control;
  for (const TextPart& part : parts) {
    check_length(text.size() + part.text.size());
    const TextRange range{text.size(), text.size() + part.text.size()};
    text += part.text;
    if (!part.is_control) continue;
    if (!control.empty() && control.back().end == range.begin) {
      control.back().end = range.end;  // one literal may lie across both
    } else {
      control.push_back(range);
    }
  }
  return Encoding(*impl_, text).run(control);
}

}  // namespace tessera
