// The rules of sharing: who may write a page, and which page is evicted when none is free.
// SPDX-License-Identifier: MIT
#include "cache/page_cache.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::cache {
namespace {

const CacheOptions& checked(const CacheOptions& options) {
  if (options.page_size < 1 || options.page_size > 65536) {
    fail(concat("PageCache: page_size is ", options.page_size, "; give 1 to 65536"));
  }
  return options;
}

}  // namespace

PageCache::PageCache(const CacheOptions& options)
    : options_(checked(options)),
      pool_(options.num_pages),
      index_(options.use_prefix_index ? options.num_pages : 0, options.page_size, options.hash_key,
             options.digest_bits) {
  for (int64_t i = options.num_tails; i > 0; --i) {
    free_tails_.push_back(static_cast<int32_t>(i - 1));
  }
}

template <class Visit>
void PageCache::walk_prefix(std::span<const int32_t> tokens, std::string_view salt,
                            Visit&& visit) const {
  if (!options_.use_prefix_index || tokens.empty()) return;
  const auto page_size = static_cast<size_t>(options_.page_size);
  // The last token is always computed, because the cache does not hold its logits.
  const size_t num_full = (tokens.size() - 1) / page_size;
  Digest parent = num_full > 0 ? index_.root(salt) : Digest{};
  for (size_t i = 0; i < num_full; ++i) {
    const PageKey key = index_.key(parent, tokens.subspan(i * page_size, page_size));
    const std::optional<PageId> page = index_.find(key);
    if (!page) return;
    visit(*page, key);
    parent = key.digest;
  }
}

PrefixMatch PageCache::find_prefix(std::span<const int32_t> tokens, std::string_view salt) const {
  PrefixMatch match;
  walk_prefix(tokens, salt, [&](PageId page, const PageKey&) {
    match.num_tokens += options_.page_size;
    match.num_idle_pages += pool_.is_idle(page) ? 1 : 0;
  });
  return match;
}

int64_t PageCache::take_prefix(std::span<const int32_t> tokens, std::string_view salt,
                               PageList& list) {
  expects(list.pages.empty() && list.num_tokens == 0,
          "PageCache: take_prefix fills an empty list; release this one first");
  list.epoch = epoch_;
  walk_prefix(tokens, salt, [&](PageId page, const PageKey& key) {
    pool_.hold(page);
    list.pages.push_back(page);
    list.num_tokens += options_.page_size;
    list.num_indexed += 1;
    list.last_digest = key.digest;
  });
  num_lookup_tokens_ += static_cast<int64_t>(tokens.size());
  num_hit_tokens_ += list.num_tokens;
  return list.num_tokens;
}

int64_t PageCache::pages_for(int64_t num_tokens) const {
  return num_tokens / options_.page_size + (num_tokens % options_.page_size > 0 ? 1 : 0);
}

// Only the last page can be part full, so only it can be both shared and written next.
bool PageCache::must_copy_last(const PageList& list) const {
  return list.num_tokens % options_.page_size > 0 && pool_.num_references(list.pages.back()) > 1;
}

int64_t PageCache::pages_to_grow(const PageList& list, int64_t num_tokens) const {
  if (num_tokens <= list.num_tokens) return 0;
  return pages_for(num_tokens) - static_cast<int64_t>(list.pages.size()) +
         (must_copy_last(list) ? 1 : 0);
}

int64_t PageCache::num_available() const { return pool_.num_free() + pool_.num_idle(); }

PageId PageCache::take_page() {
  if (pool_.num_free() == 0) {
    const PageId oldest = pool_.oldest_idle().value();
    index_.remove(oldest);
    pool_.free_idle(oldest);
    ++num_evictions_;
  }
  return pool_.take_free().value();
}

int32_t PageCache::take_tail() {
  if (free_tails_.empty()) {
    fail(concat("PageCache: more lists hold tokens than there are tails, ", options_.num_tails));
  }
  const int32_t tail = free_tails_.back();
  free_tails_.pop_back();
  return tail;
}

bool PageCache::grow(PageList& list, int64_t num_tokens, std::vector<PageCopy>& copies) {
  if (num_tokens <= list.num_tokens) return true;
  if (pages_to_grow(list, num_tokens) > num_available()) return false;
  if (list.num_tokens == 0) list.epoch = epoch_;
  if (options_.num_tails > 0 && list.tail < 0) list.tail = take_tail();
  if (must_copy_last(list)) {
    const PageId source = list.pages.back();
    const PageId target = take_page();
    copies.push_back({source, target});
    pool_.release(source, IfUnheld::free);  // others hold it, so it stays held
    list.pages.back() = target;
    ++num_copies_;
  }
  const auto num_pages = static_cast<size_t>(pages_for(num_tokens));
  while (list.pages.size() < num_pages) list.pages.push_back(take_page());
  list.num_tokens = num_tokens;
  return true;
}

void PageCache::shrink(PageList& list, int64_t num_tokens) {
  const int64_t least = std::max<int64_t>(1, list.num_indexed * options_.page_size);
  if (num_tokens < least || num_tokens > list.num_tokens) {
    fail(concat("PageCache: a list of ", list.num_tokens, " tokens, ", list.num_indexed,
                " pages of them indexed, cannot shrink to ", num_tokens));
  }
  const auto num_pages = static_cast<size_t>(pages_for(num_tokens));
  for (; list.pages.size() > num_pages; list.pages.pop_back()) {
    const PageId page = list.pages.back();
    pool_.release(page, index_.has(page) ? IfUnheld::keep_idle : IfUnheld::free);
  }
  list.num_tokens = num_tokens;
}

void PageCache::index_full_pages(PageList& list, std::span<const int32_t> tokens,
                                 std::string_view salt) {
  if (!options_.use_prefix_index || list.epoch != epoch_) return;
  const int64_t page_size = options_.page_size;
  const int64_t num_written = std::min(static_cast<int64_t>(tokens.size()), list.num_tokens);
  const int64_t num_full = num_written / page_size;
  if (list.num_indexed == 0 && num_full > 0) list.last_digest = index_.root(salt);
  for (; list.num_indexed < num_full; ++list.num_indexed) {
    const auto first = static_cast<size_t>(list.num_indexed * page_size);
    const PageKey key =
        index_.key(list.last_digest, tokens.subspan(first, static_cast<size_t>(page_size)));
    const PageId page = list.pages[static_cast<size_t>(list.num_indexed)];
    // Continuing the chain from a digest that stands for other tokens would let sequences with
    // those tokens find these pages.
    if (index_.insert(page, key) == InsertResult::collides) return;
    list.last_digest = key.digest;
  }
}

PageList PageCache::fork(const PageList& list) {
  PageList second = list;
  if (list.tail >= 0) second.tail = take_tail();
  for (const PageId page : list.pages) pool_.hold(page);
  return second;
}

void PageCache::release(PageList& list) {
  for (auto it = list.pages.rbegin(); it != list.pages.rend(); ++it) {
    pool_.release(*it, index_.has(*it) ? IfUnheld::keep_idle : IfUnheld::free);
  }
  if (list.tail >= 0) free_tails_.push_back(list.tail);
  list = {};
}

void PageCache::clear_index() {
  while (const std::optional<PageId> page = pool_.oldest_idle()) pool_.free_idle(*page);
  index_.clear();
  ++epoch_;
}

CacheStats PageCache::stats() const {
  return {.num_pages = pool_.num_pages(),
          .num_held = pool_.num_pages() - pool_.num_free() - pool_.num_idle(),
          .num_idle = pool_.num_idle(),
          .num_free = pool_.num_free(),
          .num_shared = pool_.num_shared(),
          .num_references = pool_.total_references(),
          .num_lookup_tokens = num_lookup_tokens_,
          .num_hit_tokens = num_hit_tokens_,
          .num_evictions = num_evictions_,
          .num_copies = num_copies_};
}

void PageCache::check_list(const PageList& list) const {
  expects_equal(static_cast<int64_t>(list.pages.size()), pages_for(list.num_tokens),
                "PageCache: pages of a list");
  expects(list.num_indexed <= list.num_tokens / options_.page_size,
          "PageCache: a list claims to have indexed pages that are not full");
  std::vector<PageId> sorted = list.pages;
  std::ranges::sort(sorted);
  expects(std::ranges::adjacent_find(sorted) == sorted.end(),
          "PageCache: a page is in one list twice");
  // A page that is not full will still be written, so others must not find it.
  if (list.num_tokens % options_.page_size > 0) {
    expects(!index_.has(list.pages.back()), "PageCache: a page that is not full is indexed");
  }
}

void PageCache::check(std::span<const PageList* const> all_lists) const {
  pool_.check();
  index_.check();
  std::vector<int64_t> num_references(static_cast<size_t>(pool_.num_pages()), 0);
  std::vector<int32_t> tails = free_tails_;
  for (const PageList* list : all_lists) {
    check_list(*list);
    if (list->tail >= 0) tails.push_back(list->tail);
    for (const PageId page : list->pages) ++num_references.at(static_cast<size_t>(page));
  }
  std::ranges::sort(tails);
  expects(std::ranges::adjacent_find(tails) == tails.end(), "PageCache: two lists have one tail");
  expects_equal(static_cast<int64_t>(tails.size()), options_.num_tails,
                "PageCache: tails held and free");
  int64_t num_indexed = 0;
  for (PageId page = 0; page < pool_.num_pages(); ++page) {
    const int64_t want = num_references[static_cast<size_t>(page)];
    if (pool_.num_references(page) != want) {
      fail(concat("PageCache: page ", page, " counts ", pool_.num_references(page), " references; ",
                  want, " lists hold it"));
    }
    expects(!pool_.is_idle(page) || index_.has(page), "PageCache: an idle page is not indexed");
    expects(!index_.has(page) || pool_.is_idle(page) || want > 0,
            "PageCache: a free page is indexed");
    num_indexed += index_.has(page) ? 1 : 0;
  }
  expects_equal(num_indexed, index_.size(), "PageCache: pages the index knows");
}

}  // namespace tessera::cache
