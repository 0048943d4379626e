// A hash table from digests to pages, with each page's tokens for comparison.
// SPDX-License-Identifier: MIT
#include "cache/prefix_index.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::cache {
namespace {

// The first word of every hashed message, so that a salt can never be taken for a page.
enum class Kind : uint64_t { salt, page };

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace

PrefixIndex::PrefixIndex(int64_t num_pages, int64_t page_size, std::array<uint64_t, 2> hash_key,
                         int digest_bits)
    : page_size_(page_size),
      hash_key_(hash_key),
      digest_bits_(digest_bits),
      entries_(static_cast<size_t>(num_pages)),
      tokens_(static_cast<size_t>(num_pages * page_size)) {
  pages_.reserve(static_cast<size_t>(num_pages));
}

Digest PrefixIndex::root(std::string_view salt) const {
  SipHash hash(hash_key_);
  hash.add(bytes_of(Kind::salt));
  hash.add(std::as_bytes(std::span(salt)));
  return shortened(hash.finish());
}

PageKey PrefixIndex::key(const Digest& parent, std::span<const int32_t> page_tokens) const {
  expects_equal(static_cast<int64_t>(page_tokens.size()), page_size_,
                "PrefixIndex: tokens of a full page");
  SipHash hash(hash_key_);
  hash.add(bytes_of(Kind::page));
  hash.add(bytes_of(parent.low));
  hash.add(bytes_of(parent.high));
  hash.add(std::as_bytes(page_tokens));
  return {shortened(hash.finish()), parent, page_tokens};
}

std::optional<PageId> PrefixIndex::find(const PageKey& key) const {
  const auto it = pages_.find(key.digest);
  if (it == pages_.end() || !holds(it->second, key)) return std::nullopt;
  return it->second;
}

InsertResult PrefixIndex::insert(PageId page, const PageKey& key) {
  Entry& entry = entries_.at(static_cast<size_t>(page));
  if (entry.is_used && !holds(page, key)) {
    fail(concat("PrefixIndex: page ", page, " is indexed with other tokens; remove it first"));
  }
  const auto [it, is_new] = pages_.try_emplace(key.digest, page);
  if (!is_new) return holds(it->second, key) ? InsertResult::present : InsertResult::collides;
  entry = {key.digest, key.parent, true};
  std::ranges::copy(key.tokens, tokens_.begin() + page * page_size_);
  return InsertResult::inserted;
}

bool PrefixIndex::has(PageId page) const {
  const auto idx = static_cast<size_t>(page);
  return idx < entries_.size() && entries_[idx].is_used;
}

void PrefixIndex::remove(PageId page) {
  if (!has(page)) fail(concat("PrefixIndex: page ", page, " is not indexed"));
  Entry& entry = entries_[static_cast<size_t>(page)];
  pages_.erase(entry.digest);
  entry.is_used = false;
}

void PrefixIndex::clear() {
  for (const auto& [digest, page] : pages_) entries_[static_cast<size_t>(page)].is_used = false;
  pages_.clear();
}

Digest PrefixIndex::shortened(Digest digest) const {
  if (digest_bits_ >= 128) return digest;
  return {digest.low & ((uint64_t{1} << std::min(digest_bits_, 63)) - 1), 0};
}

bool PrefixIndex::holds(PageId page, const PageKey& key) const {
  const Entry& entry = entries_[static_cast<size_t>(page)];
  return entry.digest == key.digest && entry.parent == key.parent &&
         std::ranges::equal(tokens_of(page), key.tokens);
}

std::span<const int32_t> PrefixIndex::tokens_of(PageId page) const {
  return std::span(tokens_).subspan(static_cast<size_t>(page * page_size_),
                                    static_cast<size_t>(page_size_));
}

void PrefixIndex::check() const {
  const auto num_used = std::ranges::count_if(entries_, &Entry::is_used);
  expects_equal(static_cast<int64_t>(num_used), size(), "PrefixIndex: entries in use");
  for (const auto& [digest, page] : pages_) {
    const PageKey made = key(entries_[static_cast<size_t>(page)].parent, tokens_of(page));
    expects(has(page) && made.digest == digest,
            "PrefixIndex: a page's digest is not that of its parent and tokens");
  }
}

}  // namespace tessera::cache
