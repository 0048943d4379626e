// Tokenizer and StreamDecoder: made from a file, text to ids, ids to text.
// SPDX-License-Identifier: MIT
#include "tessera/text/tokenizer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/read_file.h"
#include "core/text.h"
#include "tessera/core/error.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode.h"

namespace tessera {

using namespace tokenizer;

// The parts of the file, in the order in which text passes through them. Immutable once made, so
// threads may share it.
struct Tokenizer::Impl {
  // Moves the tables out of `file`; `root` and `model` are nodes of its tree.
  Impl(TokenizerFile& file, const FileNode& root, const FileNode& model, std::string_view origin);

  std::vector<AddedToken> added;  // as the file lists them
  Vocabulary vocabulary;
  Normalizer normalizer;
  TokenFinder written_tokens;     // searched for in the text as written
  TokenFinder normalized_tokens;  // searched for in normalised text
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  Decoder decoder;
  Affixes affixes;
  std::vector<std::string> bytes;  // [num_ids]: what an id adds to a text unless it comes first

 private:
  bool is_written(const AddedToken& token) const;
  std::vector<AddedToken> added_tokens_written() const;
  std::vector<AddedToken> added_tokens_normalized() const;
};

namespace {

// The model's part of the file. Old BPE files do not name its type.
FileNode bpe_node(const FileNode& root, const TokenizerFile& file) {
  FileNode model = root.at("model");
  const std::optional<FileNode> type = model.find("type");
  if (type ? type->text() != "BPE" : !file.has_merges) {
    model.refuse(concat("a model ", type ? in_quotes(type->text()) : "without a type",
                        " is not supported; supported: BPE"));
  }
  if (!file.has_vocab) model.refuse("has no 'vocab' that is an object");
  if (!file.has_merges) model.refuse("has no 'merges' that is an array");
  return model;
}

template <class Part>
Part read_part(const FileNode& root, std::string_view key) {
  const std::optional<FileNode> node = root.find(key);
  return node ? Part(*node) : Part();
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerFile& file, const FileNode& root, const FileNode& model,
                      std::string_view origin)
    : added(read_added_tokens(root)),
      vocabulary(std::move(file.vocab), added, origin),
      normalizer(read_part<Normalizer>(root, "normalizer")),
      written_tokens(added_tokens_written()),
      normalized_tokens(added_tokens_normalized()),
      pre_tokenizer(read_part<PreTokenizer>(root, "pre_tokenizer")),
      bpe(model, file.merges, vocabulary),
      decoder(read_part<Decoder>(root, "decoder")) {
  if (const auto node = root.find("post_processor")) {
    affixes = read_post_processor(*node, vocabulary);
  }
  size_t num_bytes = 0;
  for (int32_t id = 0; id < vocabulary.num_ids(); ++id) num_bytes += vocabulary.text(id).size();
  MatchBudget budget(num_bytes);
  bytes.reserve(static_cast<size_t>(vocabulary.num_ids()));
  for (int32_t id = 0; id < vocabulary.num_ids(); ++id) {
    bytes.push_back(decoder.bytes_of(vocabulary.text(id), false, vocabulary.is_added(id), budget));
  }
}

// Special tokens are searched for as written even if the file says "normalized": normalising the
// text around them must not hide them.
bool Tokenizer::Impl::is_written(const AddedToken& token) const {
  return !token.is_normalized || token.is_special || normalizer.is_identity();
}

std::vector<AddedToken> Tokenizer::Impl::added_tokens_written() const {
  std::vector<AddedToken> tokens;
  for (const AddedToken& token : added) {
    if (is_written(token)) tokens.push_back(token);
  }
  return tokens;
}

std::vector<AddedToken> Tokenizer::Impl::added_tokens_normalized() const {
  std::vector<AddedToken> tokens;
  MatchBudget budget(0);
  for (const AddedToken& token : added) {
    if (is_written(token)) continue;
    tokens.push_back(token);
    tokens.back().content = normalizer.apply(token.content, false, budget);
  }
  return tokens;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::parse(std::string_view json, std::string_view origin) {
  TokenizerFile file = read_tokenizer_file(json, origin);
  const FileNode root(*file.root, std::string(origin), true);
  const FileNode model = bpe_node(root, file);
  return Tokenizer(std::make_unique<Impl>(file, root, model, origin));
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return parse(read_file(file, static_cast<int64_t>(kMaxFileBytes)), shown_path(file.native()));
}

const std::vector<int32_t>& Tokenizer::prefix() const { return impl_->affixes.prefix; }
const std::vector<int32_t>& Tokenizer::suffix() const { return impl_->affixes.suffix; }
int32_t Tokenizer::num_ids() const { return impl_->vocabulary.num_ids(); }
bool Tokenizer::is_special(int32_t id) const { return impl_->vocabulary.is_special(id); }

std::optional<int32_t> Tokenizer::find(std::string_view token) const {
  return impl_->vocabulary.find(token);
}

std::string_view Tokenizer::token_text(int32_t id) const { return impl_->vocabulary.text(id); }

namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // positions in a word are 32-bit

void check_length(size_t bytes) {
  if (bytes <= kMaxTextBytes) return;
  fail(concat("tokenizer: the text has ", bytes, " bytes; at most ", kMaxTextBytes,
              " are encoded at once"));
}

// Encodes one text.
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
  // Text between added tokens, cut into runs of valid UTF-8 and runs of other bytes.
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
      control.back().end = range.end;  // a literal may span both parts
    } else {
      control.push_back(range);
    }
  }
  return Encoding(*impl_, text).run(control);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool keep_special) const {
  StreamDecoder decoder(*this, keep_special);
  std::string text;
  for (const int32_t id : ids) decoder.append(id, text);
  text += decoder.finish();
  return text;
}

std::string Tokenizer::token_bytes(int32_t id, bool is_first) const {
  const CharacterStrip& strip = impl_->decoder.strip();
  if (strip.num_left > 1 || strip.num_right > 0) {
    fail(concat("tokenizer: its decoder strips ", strip.num_left, " characters at the start and ",
                strip.num_right,
                " at the end of a text, so that tokens have no bytes of their own"));
  }
  if (!impl_->vocabulary.has(id) || impl_->vocabulary.is_special(id)) return {};
  std::string bytes = impl_->bytes[static_cast<size_t>(id)];
  if (!is_first) return bytes;
  if (impl_->decoder.has_own_first()) {
    MatchBudget budget(impl_->vocabulary.text(id).size());
    bytes = impl_->decoder.bytes_of(impl_->vocabulary.text(id), true,
                                    impl_->vocabulary.is_added(id), budget);
  }
  const bool is_stripped = strip.num_left > 0 && bytes.starts_with(strip.character);
  return is_stripped ? bytes.substr(strip.character.size()) : bytes;
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

// Moves whole characters from pending_ to `out`, without those stripped from either end of the
// text.
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
  // The left end of what is held has been stripped already.
  size_t begin = num_held;
  while (num_to_strip_ > 0 && begin < text.size()) {
    const bool is_stripped = text.compare(begin, strip.character.size(), strip.character) == 0;
    num_to_strip_ = is_stripped ? num_to_strip_ - 1 : 0;
    if (is_stripped) begin += strip.character.size();
  }
  text.erase(num_held, begin - num_held);
  // The last num_right characters may turn out to be the end of the text, so they are held.
  size_t end = text.size();
  for (int64_t n = 0; n < strip.num_right; ++n) {
    if (!std::string_view(text).substr(0, end).ends_with(strip.character)) break;
    end -= strip.character.size();
  }
  held_ = text.substr(end);
  out.append(text, 0, end);
}

}  // namespace tessera
