// The decoders of Llama 2 (spaces, byte fallback) and of byte-level models.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/decoder.h"

#include <optional>

#include "core/text.h"
#include "text/tokenizer/byte_level.h"

namespace tessera::tokenizer {
namespace {

std::optional<int> hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return std::nullopt;
}

// "<0x0A>" becomes its byte; other tokens stay as they are.
std::string byte_or_text(std::string text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return text;
  const std::optional<int> high = hex_digit(text[3]);
  const std::optional<int> low = hex_digit(text[4]);
  if (!high || !low) return text;
  return {static_cast<char>(*high * 16 + *low)};
}

std::string without_spaces(std::string_view text, std::string_view space, std::string_view by) {
  std::string out;
  while (!text.empty()) {
    const size_t pos = std::min(text.find(space), text.size());
    out.append(text.substr(0, pos));
    text.remove_prefix(pos);
    if (text.empty()) break;
    out.append(by);
    text.remove_prefix(space.size());
  }
  return out;
}

std::string stripped(std::string_view text, const CharacterStrip& strip) {
  for (int64_t n = 0; n < strip.num_left && text.starts_with(strip.character); ++n) {
    text.remove_prefix(strip.character.size());
  }
  for (int64_t n = 0; n < strip.num_right && text.ends_with(strip.character); ++n) {
    text.remove_suffix(strip.character.size());
  }
  return std::string(text);
}

CharacterStrip read_strip(const FileNode& node) {
  CharacterStrip strip{node.character("content"), node.at("start").integer(),
                       node.at("stop").integer()};
  if (strip.num_left < 0 || strip.num_right < 0) {
    node.refuse(concat("strips ", strip.num_left, " and ", strip.num_right,
                       " characters; expected 0 or more"));
  }
  return strip;
}

}  // namespace

Decoder::Decoder(const FileNode& node) : joins_with_space_(false) {
  Stage stage = Stage::tokens;
  for (const FileNode& step : sequence_of(node, "decoders")) add(step, stage);
}

void Decoder::add(const FileNode& node, Stage& stage) {
  const std::string type = node.type();
  if (type == "Fuse") {
    stage = Stage::whole;
    return;
  }
  if (type == "Strip" && stage == Stage::whole && strip_.character.empty()) {
    strip_ = read_strip(node);
    return;
  }
  const Stage before = stage;
  if (type == "ByteLevel") {
    stage = Stage::whole;
    steps_.push_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    stage = Stage::bytes;
    steps_.push_back(ByteFallback{});
  } else if (type == "Metaspace") {
    const std::optional<FileNode> scheme = node.find("prepend_scheme");
    const bool is_prepended = node.flag("add_prefix_space", true);
    const bool strips_first = is_prepended && !(scheme && scheme->text() == "never");
    steps_.push_back(Metaspace{node.character("replacement"), strips_first});
  } else if (type == "Replace") {
    steps_.push_back(Replacement::read(node));
  } else if (type == "Strip") {
    steps_.push_back(read_strip(node));
  } else {
    node.refuse(concat("decoder ", in_quotes(type),
                       " is not supported; supported: Sequence, ByteLevel, Metaspace, Replace, "
                       "ByteFallback, Fuse, Strip"));
  }
  if (before != Stage::tokens) {
    node.refuse(concat("decoder ", in_quotes(type), " after ",
                       before == Stage::bytes ? "ByteFallback" : "Fuse or ByteLevel",
                       " is not supported; text could not be streamed"));
  }
}

bool Decoder::has_own_first() const {
  if (joins_with_space_) return true;
  for (const Step& step : steps_) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    if (metaspace != nullptr && metaspace->strips_first) return true;
  }
  return false;
}

std::string Decoder::bytes_of(std::string_view token, bool is_first, bool is_added,
                              MatchBudget& budget) const {
  std::string out(token);
  if (joins_with_space_) return is_first ? out : " " + out;
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      std::optional<std::string> bytes = is_added ? std::nullopt : bytes_of_characters(out);
      if (bytes) out = *std::move(bytes);
    } else if (std::holds_alternative<ByteFallback>(step)) {
      out = byte_or_text(std::move(out));
    } else if (const auto* space = std::get_if<Metaspace>(&step)) {
      out = without_spaces(out, space->replacement, is_first && space->strips_first ? "" : " ");
    } else if (const auto* strip = std::get_if<CharacterStrip>(&step)) {
      out = stripped(out, *strip);
    } else {
      out = std::get<Replacement>(step).apply(out, max_grown_bytes(token.size()), budget);
    }
  }
  return out;
}

}  // namespace tessera::tokenizer
