// Finds pages by what they hold: a keyed 128-bit hash chain over full pages, checked token by
// token. SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cache/page_pool.h"

namespace tessera::cache {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Digest&) const = default;
};

// A page's digest covers its tokens and the digest of the page before it, so equal digests mean
// equal prefixes; the first page's parent is the digest of the salt.
class PrefixIndex {
 public:
  PrefixIndex(int64_t num_pages, int64_t page_size, std::array<uint64_t, 2> hash_key);

  Digest root(std::string_view salt) const;
  Digest extend(const Digest& parent, std::span<const int32_t> page_tokens) const;
  // The page holding these tokens after that parent; hash, parent and tokens all compared.
  std::optional<PageId> find(const Digest& parent, std::span<const int32_t> page_tokens) const;
  // False, changing nothing, where the same contents are indexed under another page already.
  bool insert(PageId page, const Digest& parent, std::span<const int32_t> page_tokens);
  bool has(PageId page) const;
  void remove(PageId page);
  int64_t size() const;

 private:
  struct Hasher {
    size_t operator()(const Digest& digest) const { return digest.low; }
  };
  struct Entry {
    Digest digest;
    Digest parent;
    bool is_used = false;
  };
  int64_t page_size_;
  std::array<uint64_t, 2> hash_key_;
  std::vector<Entry> entries_;   // [num_pages]
  std::vector<int32_t> tokens_;  // [num_pages, page_size]
  std::unordered_map<Digest, PageId, Hasher> pages_;
};

}  // namespace tessera::cache
