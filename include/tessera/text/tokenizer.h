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

// A run of text. Where is_control is false, text that spells a special token ("<|eot_id|>") is
// plain text: what users write never becomes a control token.
struct TextPart {
  std::string text;
  bool is_control = false;
};

class Tokenizer {
 public:
  // The text of a tokenizer.json. `origin` is what messages call it: the file's name. Refuses what
  // it does not support by naming it; time and memory stay proportional to the text.
  static Tokenizer parse(std::string_view json, std::string_view origin);
  static Tokenizer load(const std::filesystem::path& file);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of plain text, with nothing before or after it. Linear in the length of the text.
  // Bytes that are not UTF-8 are encoded as bytes where the model has byte tokens.
  std::vector<int32_t> encode(std::string_view text) const;
  // The parts as one text, special tokens recognised only within control parts.
  std::vector<int32_t> encode(std::span<const TextPart> parts) const;
  // What the post-processor puts before and after a single text: <|begin_of_text|>, usually.
  const std::vector<int32_t>& prefix() const;
  const std::vector<int32_t>& suffix() const;

  // The text of the ids. Special tokens are left out unless asked for; an incomplete or invalid
  // UTF-8 sequence becomes U+FFFD.
  std::string decode(std::span<const int32_t> ids, bool keep_special = false) const;

  int32_t num_ids() const;  // largest id + 1, added tokens included
  std::optional<int32_t> find(std::string_view token) const;  // "<|eot_id|>", or a vocabulary entry
  std::string_view token_text(int32_t id) const;  // as the file spells it; empty for holes
  bool is_special(int32_t id) const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes one id at a time. What push and finish return, joined, is decode of all ids; every
// return value is whole UTF-8 characters. Needs the tokenizer to live as long as it does.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false);
  std::string push(int32_t id);
  void append(int32_t id, std::string& out);  // push, into a text that is there already
  // What was held back, as U+FFFD where it stayed incomplete. The decoder is then as new.
  std::string finish();

 private:
  void take_whole(bool is_end, std::string& out);

  const Tokenizer* tokenizer_;
  bool keep_special_;
  bool has_token_ = false;  // a token was decoded: the first may lose its space
  int64_t num_to_strip_;    // characters that may still be stripped at the start of the text
  std::string pending_;     // bytes of a character that is not complete yet
  std::string held_;        // characters that are stripped if the text ends with them
};

}  // namespace tessera
