// Which page of a KV cache belongs to whom: allocation, sharing, copy-on-write, prefix reuse.
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

// The pages of one sequence, in order. A value the caller keeps; only PageCache changes it.
struct PageList {
  std::vector<PageId> pages;
  int64_t num_tokens = 0;   // that the pages are meant to hold; the last page may be part empty
  int64_t num_indexed = 0;  // leading full pages the prefix index has been told of
  Digest last_digest = {};  // of page num_indexed - 1: where the chain goes on
  int64_t epoch = 0;        // how often the index had been cleared when the list began
  int32_t tail = -1;        // where the cache has tails: its own, from its first token on
};

// The contents of `source` must be copied to `target` before the step writes any page. A page may
// be the source of one copy and the target of a later one, so copies are made in the order given.
struct PageCopy {
  PageId source = 0;
  PageId target = 0;
};

struct PrefixMatch {
  int64_t num_tokens = 0;      // a multiple of page_size, less than the tokens asked about
  int64_t num_idle_pages = 0;  // of the matched pages, those no sequence holds
};

struct CacheStats {
  int64_t num_pages = 0;
  int64_t num_held = 0;           // by at least one sequence
  int64_t num_idle = 0;           // kept for their prefix only; taken back when pages run short
  int64_t num_free = 0;           // holding nothing
  int64_t num_shared = 0;         // held more than once
  int64_t num_references = 0;     // over all sequences: pages they would need without sharing
  int64_t num_lookup_tokens = 0;  // asked about by take_prefix
  int64_t num_hit_tokens = 0;     // found by it
  int64_t num_evictions = 0;      // idle pages taken back
  int64_t num_copies = 0;         // pages copied on write
};

struct CacheOptions {
  int64_t num_pages = 0;
  int64_t page_size = 16;
  bool use_prefix_index = true;
  std::array<uint64_t, 2> hash_key = {};  // random per process, so that nobody can aim a collision
  int digest_bits = 128;                  // fewer make collisions common, for tests
  int64_t num_tails = 0;  // lists that may hold tokens at once, each with a tail; 0: no tails
};

// Every change keeps: num_held + num_idle + num_free == num_pages; a page's reference count is the
// number of lists it is in; a page that more than one list holds is never handed out for writing.
// Rows at or after a list's num_tokens are the ones it will write: full pages never are, shared or
// not, and a part-filled page that others hold too is copied by the grow that goes on in it.
//
// Free pages are used first, then the idle page released longest ago, which leaves the index. A
// list releases its last page first, so the tail of a sequence goes before the head that others
// are likelier to share. Every operation costs O(1) a page it touches; see prefix_index.h for hits.
class PageCache {
 public:
  explicit PageCache(const CacheOptions& options);

  // How much of `tokens` the index holds, up to all but the last token; changes nothing.
  PrefixMatch find_prefix(std::span<const int32_t> tokens, std::string_view salt) const;
  // The same, and `list` (which must be empty) takes the pages: idle ones are held again.
  int64_t take_prefix(std::span<const int32_t> tokens, std::string_view salt, PageList& list);

  // Pages out of num_available() that growing `list` to `num_tokens` would take, a copy of a shared
  // last page included.
  int64_t pages_to_grow(const PageList& list, int64_t num_tokens) const;
  // Free pages and idle ones: what growing may use.
  int64_t num_available() const;
  // Makes room for `num_tokens` in all, pages that will be written being the list's alone. False,
  // with nothing changed, when there are not enough pages. Copies to make are added to `copies`.
  // Nothing happens where the list has the room already: lists do not shrink.
  bool grow(PageList& list, int64_t num_tokens, std::vector<PageCopy>& copies);

  // Tells the index of pages that are full of `tokens`: the sequence's from its start, as far as
  // they are written, under one salt from the first call to the last. A page whose contents are
  // indexed under another page stays the list's own, unindexed, and is free once released.
  void index_full_pages(PageList& list, std::span<const int32_t> tokens, std::string_view salt);
  // A second list over the same pages. Its tail, where there are tails, is another, into which the
  // caller copies that of `list` before either is written.
  PageList fork(const PageList& list);
  void release(PageList& list);  // leaves it empty
  // Forgets every prefix: idle pages become free. Lists begun before are never indexed again, so
  // that nothing computed before the call is found after it.
  void clear_index();

  int64_t page_size() const { return options_.page_size; }
  CacheStats stats() const;
  // Refuses if any invariant is broken, naming it; walks everything, for tests.
  void check(std::span<const PageList* const> all_lists) const;

 private:
  // Calls visit(page, key) for each leading full page of `tokens` that the index holds.
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
