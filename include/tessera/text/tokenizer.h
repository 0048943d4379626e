// Text to token ids and back, as a model's tokenizer.json says.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A piece of text. Unless is_control, text that spells a special token ("<|eot_id|>") is plain
// text, so what users write never becomes a control token.
struct TextPart {
  std::string text;
  bool is_control = false;
};

class Tokenizer {
 public:
  // Parses the text of a tokenizer.json. `origin` is its name in messages. Refuses what is not
  // supported, by name. Time and memory are proportional to the text.
  static Tokenizer parse(std::string_view json, std::string_view origin);
  static Tokenizer load(const std::filesystem::path& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of plain text, without prefix and suffix. Linear in the length of the text. Bytes that
  // are not UTF-8 are encoded as bytes if the model has byte tokens.
  std::vector<int32_t> encode(std::string_view text) const;
  // The parts as one text. Special tokens are recognised only within control parts.
  std::vector<int32_t> encode(std::span<const TextPart> parts) const;
  // The ids the post-processor puts before and after a text: <|begin_of_text|>, usually.
  const std::vector<int32_t>& prefix() const;
  const std::vector<int32_t>& suffix() const;

  // The text of the ids, without special tokens unless keep_special. An incomplete or invalid UTF-8
  // sequence becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool keep_special = false) const;

  int32_t num_ids() const;  // largest id + 1, added tokens included
  std::optional<int32_t> find(std::string_view token) const;  // "<|eot_id|>", or a vocabulary entry
  std::string_view token_text(int32_t id) const;  // as in the file; empty for unused ids
  bool is_special(int32_t id) const;
  // The bytes the id adds to a decoded text, which may be part of a character: nothing for special
  // and unused ids. The first id of a text may lose a space. Refuses for tokenizers whose decoder
  // strips more than one character at the start of a text, or some at its end.
  std::string token_bytes(int32_t id, bool is_first) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes one id at a time. The results of push and finish, joined, equal decode() of all ids; each
// result is whole UTF-8 characters. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false);
  std::string push(int32_t id);
  void append(int32_t id, std::string& out);  // as push, appended to `out`
  // What was held back, with U+FFFD for an incomplete character. Resets the decoder.
  std::string finish();

 private:
  void take_whole(bool is_end, std::string& out);

  const Tokenizer* tokenizer_;
  bool keep_special_;
  bool has_token_ = false;  // the first token may lose its space
  int64_t num_to_strip_;    // characters that may still be stripped at the start
  std::string pending_;     // bytes of an incomplete character
  std::string held_;        // characters to strip if the text ends with them
};

}  // namespace tessera
