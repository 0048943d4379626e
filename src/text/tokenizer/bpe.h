// Byte pair encoding: turns a word into ids by merging neighbours, best pair first.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer_file.h"
#include "text/tokenizer/vocabulary.h"
#include "text/unicode.h"

namespace tessera::tokenizer {

// (left, right) -> (rank, result): one flat table of 16-byte slots with linear probing.
class MergeTable {
 public:
  struct Merge {
    int32_t rank;  // lower ranks merge first
    int32_t result;
  };
  explicit MergeTable(size_t num_merges);
  void insert(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    Merge merge{};
  };
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;

  // The vocabulary must outlive this object. Refuses unsupported options, and merges of tokens that
  // are not in the vocabulary, by name.
  Bpe(const FileNode& model, const Merges& merges, const Vocabulary& vocabulary);

  // Shared by the words of one text: memory for merging, and the ids of short words seen before.
  class Workspace {
   public:
    explicit Workspace(size_t text_bytes);

   private:
    friend class Bpe;
    struct Symbol {
      int32_t id;  // -1 once merged into the previous symbol
      int32_t prev;
      int32_t next;
    };
    // Ordered by rank, then by position. An entry is stale if the pair no longer exists.
    struct Pair {
      int32_t rank;
      int32_t pos;
      int32_t left;
      int32_t right;
      int32_t result;
    };
    struct CachedWord {
      std::array<char, 22> text;
      uint8_t num_bytes = 0;
      uint8_t num_ids = 0;
      std::array<int32_t, 6> ids;
    };
    CachedWord* cached(std::string_view word);

    std::vector<Symbol> symbols_;
    std::vector<Pair> heap_;
    std::vector<CachedWord> cache_;  // direct-mapped: a slot keeps the last word
  };

  // Appends the ids of a word of valid UTF-8, in O(n log n). Unknown characters become byte tokens,
  // the unknown token or nothing, as the file says.
  void encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const;
  // As encode, for bytes that are not UTF-8.
  void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const;

 private:
  static constexpr int32_t kNone = -1;

  void add_merges(const Merges& merges, const std::string& place);
  void encode_word(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const;
  void append_symbols(std::string_view word, std::vector<Workspace::Symbol>& symbols) const;
  void push_pair(Workspace& workspace, int32_t pos) const;
  void merge(Workspace& workspace) const;
  int32_t id_of(const unicode::Character& character, std::string_view text) const;
  bool has_all_bytes(std::string_view bytes) const;

  const Vocabulary* vocabulary_;
  MergeTable merges_;
  std::array<int32_t, 0x800> short_ids_;  // of characters of one or two bytes
  std::array<int32_t, 256> byte_ids_;     // of "<0x00>" to "<0xFF>", with byte fallback
  std::optional<int32_t> unknown_;
  bool fuses_unknown_ = false;
  bool ignores_merges_ = false;  // a word that is a token is not split
};

}  // namespace tessera::tokenizer
