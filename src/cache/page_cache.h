// Which sequence holds which page of the KV cache: allocation, sharing, copy-on-write, prefix
// reuse.
// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/page_pool.h"
#include "cache/prefix_index.h"

namespace tessera::cache {

// The pages of one sequence, in order. The caller keeps it; only PageCache changes it.
struct PageList {
  std::vector<PageId> pages;
  int64_t num_tokens = 0;   // tokens the pages have been taken for; the last page may be part empty
  int64_t num_indexed = 0;  // leading full pages that are in the prefix index
  Digest last_digest = {};  // of page num_indexed - 1, from which the hash chain continues
  int64_t epoch = 0;        // how often the index had been cleared when the list began
  int32_t tail = -1;        // its own tail, from the first token on; -1 in caches without tails
};

// The contents of `source` must be copied to `target` before the step writes any page. A page may
// be the source of one copy and the target of a later one, so copies must be made in order.
struct PageCopy {
  PageId source = 0;
  PageId target = 0;
};

struct PrefixMatch {
  int64_t num_tokens = 0;      // a multiple of page_size, less than the number of tokens given
  int64_t num_idle_pages = 0;  // matched pages that no sequence holds
};

struct CacheStats {
  int64_t num_pages = 0;
  int64_t num_held = 0;           // by at least one sequence
  int64_t num_idle = 0;           // kept for their prefix only; evicted when pages run short
  int64_t num_free = 0;           // without contents
  int64_t num_shared = 0;         // held by more than one sequence
  int64_t num_references = 0;     // summed over all sequences: the pages needed without sharing
  int64_t num_lookup_tokens = 0;  // tokens given to take_prefix
  int64_t num_hit_tokens = 0;     // tokens it found
  int64_t num_evictions = 0;
  int64_t num_copies = 0;  // pages copied on write
};

struct CacheOptions {
  int64_t num_pages = 0;
  int64_t page_size = 16;
  bool use_prefix_index = true;
  std::array<uint64_t, 2> hash_key = {};  // random per process: collisions cannot be constructed
  int digest_bits = 128;                  // fewer make collisions frequent, for tests
  int64_t num_tails = 0;  // lists that may hold tokens at once, one tail each; 0: no tails
};

// Invariants: num_held + num_idle + num_free == num_pages; a page's reference count is the number
// of lists that contain it; a page in more than one list is never written. A list writes only rows
// from num_tokens on, so it never writes a full page. If its last page is part full and shared, the
// next grow replaces it by a copy.
//
// New pages come from the free ones, then from the idle page released longest ago, which is evicted
// from the index. A list releases its last page first, so the end of a sequence is evicted before
// its beginning, which others are more likely to share. Every operation costs O(1) per page that it
// touches; prefix_index.h says what a lookup costs.
class PageCache {
 public:
  explicit PageCache(const CacheOptions& options);

  // How many of `tokens`, at most all but the last, the index holds. Changes nothing.
  PrefixMatch find_prefix(std::span<const int32_t> tokens, std::string_view salt) const;
  // The same, and `list`, which must be empty, takes the pages.
  int64_t take_prefix(std::span<const int32_t> tokens, std::string_view salt, PageList& list);

  // How many of num_available() pages growing `list` to `num_tokens` would take, including the copy
  // of a shared last page.
  int64_t pages_to_grow(const PageList& list, int64_t num_tokens) const;
  // Free and idle pages: what grow can use.
  int64_t num_available() const;
  // Makes room for `num_tokens` in total, so that every page to be written belongs to this list
  // alone. Appends the copies to make to `copies`. Returns false and changes nothing if there are
  // too few pages. With enough room already, nothing happens.
  bool grow(PageList& list, int64_t num_tokens, std::vector<PageCopy>& copies);
  // Gives up the tokens from `num_tokens` on, and the pages that held only them. Pages that have
  // been indexed are kept: `num_tokens` must not cut into them.
  void shrink(PageList& list, int64_t num_tokens);

  // Indexes the full pages of `list`. `tokens` are the sequence's from its start, as far as they
  // have been computed; the salt must be the same in every call. If other pages with the same
  // contents are indexed already, the list keeps its own unindexed, and they become free when
  // released.
  void index_full_pages(PageList& list, std::span<const int32_t> tokens, std::string_view salt);
  // A second list over the same pages. In a cache with tails it gets a tail of its own, and the
  // caller must copy that of `list` into it before either is written.
  PageList fork(const PageList& list);
  void release(PageList& list);  // leaves it empty
  // Forgets every prefix: idle pages become free. Lists that began before the call are never
  // indexed again, so nothing computed before it is found after it.
  void clear_index();

  int64_t page_size() const { return options_.page_size; }
  CacheStats stats() const;
  // Refuses if an invariant is broken, naming it. Walks everything; for tests.
  void check(std::span<const PageList* const> all_lists) const;

 private:
  // Calls visit(page, key) for each leading full page of `tokens` that is indexed.
  template <class Visit>
  void walk_prefix(std::span<const int32_t> tokens, std::string_view salt, Visit&& visit) const;
  int64_t pages_for(int64_t num_tokens) const;
  bool must_copy_last(const PageList& list) const;
  PageId take_page();
  int32_t take_tail();
  void check_list(const PageList& list) const;

  CacheOptions options_;
  PagePool pool_;
  PrefixIndex index_;
  std::vector<int32_t> free_tails_;
  int64_t epoch_ = 0;
  int64_t num_lookup_tokens_ = 0;
  int64_t num_hit_tokens_ = 0;
  int64_t num_evictions_ = 0;
  int64_t num_copies_ = 0;
};

}  // namespace tessera::cache
