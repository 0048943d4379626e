// Reads the types of pre-tokenizer and runs their steps.
// SPDX-License-Identifier: MIT
#include "text/tokenizer/pre_tokenizer.h"

#include <optional>

#include "core/text.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// Rust's \w, which includes the two joiners that Oniguruma's \w lacks.
constexpr std::string_view kWordsPattern = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";
constexpr int kMaxGrowing = 4;  // two of ByteLevel, two of Metaspace

}  // namespace

PreTokenizer::PreTokenizer(const FileNode& node) {
  for (const FileNode& step : sequence_of(node, "pretokenizers")) add(step);
  // These steps lengthen a text, so their number is limited.
  int num_growing = 0;
  for (const Step& step : steps_) {
    const bool is_growing = std::holds_alternative<Prefix>(step) ||
                            std::holds_alternative<ReplaceSpaces>(step) ||
                            std::holds_alternative<MapBytes>(step);
    if (is_growing && ++num_growing > kMaxGrowing) {
      node.refuse("has ByteLevel and Metaspace too often; expected each once at most");
    }
  }
}

PreTokenizer::Behavior PreTokenizer::read_behavior(const FileNode& node) {
  const std::string name = node.text();
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Removed") return Behavior::removed;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  node.refuse(concat("is ", in_quotes(name),
                     "; expected Isolated, Removed, MergedWithPrevious, MergedWithNext or "
                     "Contiguous"));
}

void PreTokenizer::add(const FileNode& node) {
  const std::string type = node.type();
  if (type == "Split") {
    steps_.push_back(Split{Pattern::read(node.at("pattern")), read_behavior(node.at("behavior")),
                           node.flag("invert", false)});
  } else if (type == "ByteLevel") {
    add_byte_level(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else if (type == "Digits") {
    const bool is_individual = node.flag("individual_digits", false);
    const Behavior behavior = is_individual ? Behavior::isolated : Behavior::contiguous;
    steps_.push_back(Split{Pattern(&unicode::is_numeric), behavior, false});
  } else if (type == "Punctuation") {
    const std::optional<FileNode> named = node.find("behavior");
    const Behavior behavior = named ? read_behavior(*named) : Behavior::isolated;
    steps_.push_back(Split{Pattern(&unicode::is_punctuation), behavior, false});
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(Split{Pattern(&unicode::is_whitespace), Behavior::removed, false});
  } else if (type == "Whitespace") {
    steps_.push_back(Split{Pattern(Regex(kWordsPattern, node.place())), Behavior::removed, true});
  } else {
    node.refuse(concat("pre-tokenizer ", in_quotes(type),
                       " is not supported; supported: Sequence, Split, ByteLevel, Metaspace, "
                       "Digits, Punctuation, Whitespace, WhitespaceSplit"));
  }
}

void PreTokenizer::add_byte_level(const FileNode& node) {
  if (node.flag("add_prefix_space", true)) steps_.push_back(Prefix{" ", false});
  if (node.flag("use_regex", true)) {
    steps_.push_back(Split{Pattern(Regex(kGpt2Pattern, node.place())), Behavior::isolated, false});
  }
  steps_.push_back(MapBytes{});
}

void PreTokenizer::add_metaspace(const FileNode& node) {
  const std::string replacement = node.character("replacement");
  steps_.push_back(ReplaceSpaces{replacement});
  const std::optional<FileNode> named = node.find("prepend_scheme");
  const std::string scheme = named ? named->text() : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    named->refuse(concat("is ", in_quotes(scheme), "; expected always, first or never"));
  }
  // Older files have add_prefix_space; if it is false, it takes precedence.
  if (scheme != "never" && node.flag("add_prefix_space", true)) {
    steps_.push_back(Prefix{replacement, scheme == "first"});
  }
  if (node.flag("split", true)) {
    steps_.push_back(Split{Pattern(replacement), Behavior::merged_with_next, false});
  }
}

// Takes the matched and unmatched ranges of a text in order, and emits the pieces they form.
class PreTokenizer::Joiner {
 public:
  using Emit = std::function<void(size_t, size_t)>;

  Joiner(Behavior behavior, const Emit& emit) : behavior_(behavior), emit_(emit) {}

  void add(size_t begin, size_t end, bool is_match) {
    const bool joins = has_open_ && joins_open(is_match);
    if (!joins) {
      flush();
      begin_ = begin;
    }
    end_ = end;
    has_open_ = true;
    is_match_ = is_match;
  }

  void flush() {
    const bool is_kept = !(behavior_ == Behavior::removed && is_match_);
    if (has_open_ && is_kept && begin_ != end_) emit_(begin_, end_);
    has_open_ = false;
  }

 private:
  // Whether a range joins the previous piece; depends on whether each of them matched.
  bool joins_open(bool is_match) const {
    switch (behavior_) {
      case Behavior::isolated:
      case Behavior::removed: return false;
      case Behavior::merged_with_previous: return is_match && !is_match_;
      case Behavior::merged_with_next: return !is_match && is_match_;
      case Behavior::contiguous: return is_match == is_match_;
    }
    return false;
  }

  Behavior behavior_;
  const Emit& emit_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool has_open_ = false;
  bool is_match_ = false;  // of the last range added
};

struct PreTokenizer::Run {
  const std::vector<Step>& steps;
  MatchBudget& budget;
  const Sink& sink;
  std::vector<std::string> buffers;  // of each step that changes text

  void pass(size_t step_idx, const Piece& piece) {
    if (piece.text.empty()) return;
    if (step_idx == steps.size()) {
      sink(piece);
      return;
    }
    std::visit([&](const auto& step) { take(step, step_idx, piece); }, steps[step_idx]);
  }

  void take(const Prefix& prefix, size_t step_idx, Piece piece) {
    const bool is_wanted = piece.is_valid && !piece.continues &&
                           (piece.is_first || !prefix.only_first) &&
                           !piece.text.starts_with(prefix.text);
    if (is_wanted) {
      std::string& buffer = buffers[step_idx];
      buffer.assign(prefix.text).append(piece.text);
      piece.text = buffer;
    }
    pass(step_idx + 1, piece);
  }

  void take(const ReplaceSpaces& spaces, size_t step_idx, Piece piece) {
    if (piece.is_valid) {
      std::string& buffer = buffers[step_idx];
      buffer.clear();
      for (const char byte : piece.text) {
        if (byte == ' ')
          buffer.append(spaces.by);
        else
          buffer.push_back(byte);
      }
      piece.text = buffer;
    }
    pass(step_idx + 1, piece);
  }

  void take(const MapBytes&, size_t step_idx, Piece piece) {
    std::string& buffer = buffers[step_idx];
    buffer.clear();
    append_byte_characters(buffer, piece.text);
    piece.text = buffer;
    piece.is_valid = true;
    pass(step_idx + 1, piece);
  }

  void take(const Split& split, size_t step_idx, const Piece& piece) {
    if (!piece.is_valid) {
      pass(step_idx + 1, piece);
      return;
    }
    const Joiner::Emit emit = [&](size_t begin, size_t end) {
      pass(step_idx + 1, {.text = piece.text.substr(begin, end - begin),
                          .is_first = piece.is_first && begin == 0,
                          .continues = piece.continues && begin == 0});
    };
    Joiner joiner(split.behavior, emit);
    size_t done = 0;
    split.pattern.for_each(piece.text, budget, [&](const Match& match) {
      if (match.begin != done) joiner.add(done, match.begin, split.is_inverted);
      joiner.add(match.begin, match.end, !split.is_inverted);
      done = match.end;
    });
    if (done != piece.text.size()) joiner.add(done, piece.text.size(), split.is_inverted);
    joiner.flush();
  }
};

void PreTokenizer::split(const Piece& piece, MatchBudget& budget, const Sink& sink) const {
  Run run{steps_, budget, sink, std::vector<std::string>(steps_.size())};
  run.pass(0, piece);
}

}  // namespace tessera::tokenizer
