// Merges with a heap of pairs over a linked list, so that a word of n symbols costs O(n log n).
// SPDX-License-Identifier: MIT
#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/text.h"
#include "tessera/core/error.h"
#include "text/unicode.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kCacheSlots = 4096;
constexpr size_t kBytesWorthACache = 2048;

uint64_t mixed(uint64_t key) {
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 29;
}

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

std::string byte_token(size_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

// Options that no supported model sets.
void refuse_options(const FileNode& model) {
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<FileNode> value = model.find(key);
    if (value && !value->text().empty()) {
      value->refuse(concat("is ", in_quotes(value->text()), "; only an empty one is supported"));
    }
  }
  const std::optional<FileNode> dropout = model.find("dropout");
  if (dropout && dropout->number() != 0.0) {
    dropout->refuse(concat("is ", dropout->number(), "; only 0 is supported"));
  }
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 1)) {}

size_t MergeTable::slot_of(uint64_t key) const {
  size_t idx = mixed(key) & (slots_.size() - 1);
  while (slots_[idx].key != key && slots_[idx].key != UINT64_MAX) {
    idx = (idx + 1) & (slots_.size() - 1);
  }
  return idx;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == UINT64_MAX ? nullptr : &slot.merge;
}

Bpe::Workspace::Workspace(size_t text_bytes) {
  if (text_bytes >= kBytesWorthACache) cache_.resize(kCacheSlots);
}

Bpe::Workspace::CachedWord* Bpe::Workspace::cached(std::string_view word) {
  if (cache_.empty() || word.size() > CachedWord{}.text.size()) return nullptr;
  uint64_t hash = word.size();
  for (const char byte : word) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3u;
  return &cache_[mixed(hash) % kCacheSlots];
}

Bpe::Bpe(const FileNode& model, const Merges& merges, const Vocabulary& vocabulary)
    : vocabulary_(&vocabulary), merges_(merges.size()) {
  refuse_options(model);
  ignores_merges_ = model.flag("ignore_merges", false);
  fuses_unknown_ = model.flag("fuse_unk", false);
  const std::optional<FileNode> unknown = model.find("unk_token");
  if (unknown && !unknown->text().empty()) {
    unknown_ = vocabulary.find(unknown->text());
    if (!unknown_)
      unknown->refuse(concat("is ", in_quotes(unknown->text()), ", which is no token"));
  }
  byte_ids_.fill(kNone);
  if (model.flag("byte_fallback", false)) {
    for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
      byte_ids_[byte] = vocabulary.find_model(byte_token(byte)).value_or(kNone);
    }
  }
  for (size_t code = 0; code < short_ids_.size(); ++code) {
    std::string text;
    unicode::append_character(text, static_cast<char32_t>(code));
    short_ids_[code] = vocabulary.find_model(text).value_or(kNone);
  }
  add_merges(merges, model.place());
}

void Bpe::add_merges(const Merges& merges, const std::string& place) {
  int32_t rank = 0;
  std::string whole;
  for (const auto& [left, right] : merges) {
    whole.assign(left).append(right);
    const auto id = [&](const std::string& token) {
      const std::optional<int32_t> found =
          token.empty() ? std::nullopt : vocabulary_->find_model(token);
      if (!found) {
        fail(concat(place, ".merges[", rank, "]: merges ", in_quotes(left), " and ",
                    in_quotes(right), ", but ", in_quotes(token), " is not in the vocabulary"));
      }
      return *found;
    };
    const int32_t left_id = id(left);
    const int32_t right_id = id(right);
    merges_.insert(left_id, right_id, {rank, id(whole)});
    ++rank;
  }
}

int32_t Bpe::id_of(const unicode::Character& character, std::string_view text) const {
  if (character.code < short_ids_.size()) return short_ids_[character.code];
  return vocabulary_->find_model(text).value_or(kNone);
}

bool Bpe::has_all_bytes(std::string_view bytes) const {
  return std::ranges::all_of(
      bytes, [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] != kNone; });
}

void Bpe::append_symbols(std::string_view word, std::vector<Workspace::Symbol>& symbols) const {
  bool is_after_unknown = false;
  const auto append = [&](int32_t id) {
    const auto pos = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, pos - 1, pos + 1});
  };
  while (!word.empty()) {
    const unicode::Character next = unicode::read_character(word);
    const std::string_view text = word.substr(0, next.bytes);
    word.remove_prefix(next.bytes);
    const int32_t id = id_of(next, text);
    bool is_unknown = false;
    if (id != kNone) {
      append(id);
    } else if (has_all_bytes(text)) {
      for (const char byte : text) append(byte_ids_[static_cast<uint8_t>(byte)]);
    } else if (unknown_) {
      is_unknown = true;
      if (!is_after_unknown || !fuses_unknown_) append(*unknown_);
    }
    is_after_unknown = is_unknown;
  }
  if (!symbols.empty()) symbols.back().next = kNone;
}

// Queues the pair of the symbol at pos and the next one, if there is a merge for it.
void Bpe::push_pair(Workspace& workspace, int32_t pos) const {
  if (pos == kNone) return;
  const auto& symbols = workspace.symbols_;
  const Workspace::Symbol& symbol = symbols[static_cast<size_t>(pos)];
  if (symbol.next == kNone) return;
  const int32_t right = symbols[static_cast<size_t>(symbol.next)].id;
  const MergeTable::Merge* merge = merges_.find(symbol.id, right);
  if (merge == nullptr) return;
  workspace.heap_.push_back({merge->rank, pos, symbol.id, right, merge->result});
}

// Each merge removes one symbol and adds at most two pairs: O(n log n) for n symbols.
void Bpe::merge(Workspace& workspace) const {
  auto& symbols = workspace.symbols_;
  auto& heap = workspace.heap_;
  const auto comes_later = [](const Workspace::Pair& a, const Workspace::Pair& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.pos > b.pos;
  };
  const auto push = [&](int32_t pos) {
    const size_t num_before = heap.size();
    push_pair(workspace, pos);
    if (heap.size() > num_before) std::push_heap(heap.begin(), heap.end(), comes_later);
  };
  heap.clear();
  for (size_t pos = 0; pos < symbols.size(); ++pos) push_pair(workspace, static_cast<int32_t>(pos));
  std::make_heap(heap.begin(), heap.end(), comes_later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    const Workspace::Pair pair = heap.back();
    heap.pop_back();
    Workspace::Symbol& left = symbols[static_cast<size_t>(pair.pos)];
    if (left.id != pair.left || left.next == kNone) continue;
    Workspace::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != pair.right) continue;
    left.id = pair.result;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kNone) symbols[static_cast<size_t>(left.next)].prev = pair.pos;
    push(left.prev);
    push(pair.pos);
  }
}

void Bpe::encode_word(std::string_view word, Workspace& workspace,
                      std::vector<int32_t>& ids) const {
  workspace.symbols_.clear();
  append_symbols(word, workspace.symbols_);
  merge(workspace);
  for (const Workspace::Symbol& symbol : workspace.symbols_) {
    if (symbol.id != kNone) ids.push_back(symbol.id);
  }
}

void Bpe::encode(std::string_view word, Workspace& workspace, std::vector<int32_t>& ids) const {
  Workspace::CachedWord* cached = workspace.cached(word);
  if (cached != nullptr && word == std::string_view(cached->text.data(), cached->num_bytes)) {
    ids.insert(ids.end(), cached->ids.begin(), cached->ids.begin() + cached->num_ids);
    return;
  }
  const size_t num_before = ids.size();
  const std::optional<int32_t> whole =
      ignores_merges_ ? vocabulary_->find_model(word) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    encode_word(word, workspace, ids);
  }
  const size_t num_ids = ids.size() - num_before;
  if (cached == nullptr || num_ids > cached->ids.size()) return;
  std::ranges::copy(word, cached->text.begin());
  cached->num_bytes = static_cast<uint8_t>(word.size());
  cached->num_ids = static_cast<uint8_t>(num_ids);
  std::copy(ids.end() - static_cast<ptrdiff_t>(num_ids), ids.end(), cached->ids.begin());
}

void Bpe::encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  bool is_after_unknown = false;
  for (const char byte : bytes) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id != kNone) {
      ids.push_back(id);
    } else if (unknown_ && !(is_after_unknown && fuses_unknown_)) {
      ids.push_back(*unknown_);
    }
    is_after_unknown = id == kNone;
  }
}

}  // namespace tessera::tokenizer
