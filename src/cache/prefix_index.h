// Finds full pages by their contents: a keyed hash chain whose hits are compared token by token.
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

// Identifies the contents of a full page: its tokens and everything before them.
struct PageKey {
  Digest digest;  // of parent and tokens
  Digest parent;  // the digest of the page before; for the first page, the root of the salt
  std::span<const int32_t> tokens;
};

enum class InsertResult : uint8_t {
  inserted,  // can be found from now on
  present,   // the same contents are indexed already, as this page or another
  collides,  // other contents have this digest: nothing changed, and the chain must end here
};

// A page's digest covers its tokens and the digest of the page before it, so it identifies the
// whole prefix. A lookup succeeds only if digest, parent and tokens all agree. Contexts could be
// mixed up only by two different prefixes with equal digests: with 128 bits and a secret key the
// chance is 2^-49 for any pair among 2^40 pages. A lookup costs one hash over the tokens of a page.
//
// A page may be removed before the pages that follow it. Those stay indexed: their digests still
// describe their contents, and lookups reach them again once the missing page is inserted anew.
class PrefixIndex {
 public:
  // Fewer digest bits make collisions frequent, for tests.
  PrefixIndex(int64_t num_pages, int64_t page_size, std::array<uint64_t, 2> hash_key,
              int digest_bits = 128);

  Digest root(std::string_view salt) const;
  // The key points to `page_tokens`, which must outlive it.
  PageKey key(const Digest& parent, std::span<const int32_t> page_tokens) const;
  std::optional<PageId> find(const PageKey& key) const;
  // Refuses a page that is indexed with other contents.
  InsertResult insert(PageId page, const PageKey& key);
  bool has(PageId page) const;
  void remove(PageId page);
  void clear();
  int64_t size() const { return static_cast<int64_t>(pages_.size()); }
  void check() const;  // refuses if table and entries disagree; walks everything

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
