// Finds pages by what they hold: a keyed hash chain over full pages, checked token by token.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/page_pool.h"
#include "cache/siphash.h"

namespace tessera::cache {

// A full page named by what it holds: its tokens, and all that came before them.
struct PageKey {
  Digest digest;  // of parent and tokens
  Digest parent;  // digest of the page before, or the root of a salt
  std::span<const int32_t> tokens;
};

// inserted: found from now on. present: the same contents are indexed, under this page or another.
// collides: other contents have the digest; nothing changed, and the chain must not go on from it.
enum class InsertResult : uint8_t { inserted, present, collides };

// A page's digest covers its tokens and the digest of the page before it, so it stands for the
// whole prefix; the first page's parent is the root of the salt. A hit is a hit only if digest,
// parent and tokens all agree, so contexts could be mixed only through two different prefixes with
// equal digests: 128 bits under a secret key, 2^-49 for any pair among 2^40 pages.
//
// A page may leave the index before the pages that follow it. Those stay: their digests still name
// their contents, and a walk reaches them again once the page before is inserted anew.
class PrefixIndex {
 public:
  // Fewer digest bits make collisions common, for tests.
  PrefixIndex(int64_t num_pages, int64_t page_size, std::array<uint64_t, 2> hash_key,
              int digest_bits = 128);

  Digest root(std::string_view salt) const;
  // The key refers to `page_tokens`, which must outlive it.
  PageKey key(const Digest& parent, std::span<const int32_t> page_tokens) const;
  std::optional<PageId> find(const PageKey& key) const;
  // Refuses a page that is indexed with other contents.
  InsertResult insert(PageId page, const PageKey& key);
  bool has(PageId page) const;
  void remove(PageId page);
  void clear();
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  void check() const;  // refuses if the table and the entries disagree; walks everything

 private:
  struct Hasher {
    size_t operator()(const Digest& digest) const { return digest.low; }
  };
  struct Entry {
    Digest digest;
    Digest parent;
    bool is_used = false;
  };
  Digest shortened(Digest digest) const;
  bool holds(PageId page, const PageKey& key) const;
  std::span<const int32_t> tokens_of(PageId page) const;

  int64_t page_size_;
  std::array<uint64_t, 2> hash_key_;
  int digest_bits_;
  std::vector<Entry> entries_;   // [num_pages]
  std::vector<int32_t> tokens_;  // [num_pages, page_size]
  std::unordered_map<Digest, PageId, Hasher> pages_;
};

}  // namespace tessera::cache
