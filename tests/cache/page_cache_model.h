// A simple model of the page cache: what each page contains, who holds it, which is evicted next.
// SPDX-License-Identifier: MIT
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/page_cache.h"

namespace tessera::cache::testing {

// A sequence, and the row it expects at each position. A row stands for a token's keys and values,
// which depend on every token before it: it is a hash of the salt and all tokens up to its own. A
// page with the right tokens from a wrong context therefore compares unequal.
struct Sequence {
  PageList list;
  std::string salt;
  std::vector<int32_t> tokens;  // as many as list.num_tokens: written
  std::vector<uint64_t> rows;
  int64_t num_indexed = 0;
  bool is_stale = false;  // begun before the index was cleared
};

inline uint64_t mixed(uint64_t previous, uint64_t value) {
  uint64_t hash = (previous ^ value) * 0x9e3779b97f4a7c15u;
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93u;
  return hash ^ (hash >> 29);
}

inline uint64_t row_after(uint64_t previous, int32_t token) {
  return mixed(previous, static_cast<uint64_t>(token) + 17);
}

inline uint64_t first_row(const std::string& salt) {
  return mixed(0, salt.empty() ? 1 : static_cast<uint64_t>(salt[0]));
}

// Deliberately simple: maps, searches and copies. The cache under test gives out the pages; the
// model says which ones it was allowed to give.
class PageCacheModel {
 public:
  PageCacheModel(int64_t num_pages, int64_t page_size, bool has_index)
      : page_size_(page_size),
        has_index_(has_index),
        owners_(static_cast<size_t>(num_pages), 0),
        prefix_of_(static_cast<size_t>(num_pages)),
        memory_(static_cast<size_t>(num_pages * page_size), 0) {}

  int64_t num_available() const { return num_in_state(0); }
  int64_t num_idle() const { return static_cast<int64_t>(idle_.size()); }
  int64_t num_free() const { return num_available() - num_idle(); }
  int64_t num_held() const { return static_cast<int64_t>(owners_.size()) - num_available(); }
  int64_t num_shared() const { return num_in_state(2); }
  int64_t num_references() const {
    int64_t sum = 0;
    for (const int64_t count : owners_) sum += count;
    return sum;
  }

  // The pages a prefix of `tokens` is found in.
  std::vector<PageId> find(const std::vector<int32_t>& tokens, const std::string& salt) const {
    std::vector<PageId> pages;
    uint64_t row = first_row(salt);
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      row = row_after(row, tokens[i]);
      if ((i + 1) % static_cast<size_t>(page_size_) != 0) continue;
      const auto it = index_.find(row);
      if (it == index_.end()) break;
      pages.push_back(it->second);
    }
    return pages;
  }

  bool is_idle(PageId page) const {
    return std::find(idle_.begin(), idle_.end(), page) != idle_.end();
  }

  void hold(PageId page) {
    std::erase(idle_, page);
    ++owners_[static_cast<size_t>(page)];
  }

  void release(const std::vector<PageId>& pages) {
    for (auto it = pages.rbegin(); it != pages.rend(); ++it) {
      if (--owners_[static_cast<size_t>(*it)] == 0 && prefix_of_[static_cast<size_t>(*it)]) {
        idle_.push_back(*it);
      }
    }
  }

  int64_t pages_to_grow(const Sequence& sequence, int64_t num_tokens) const {
    const int64_t num_pages = (num_tokens + page_size_ - 1) / page_size_;
    return num_pages - static_cast<int64_t>(sequence.list.pages.size()) +
           (must_copy(sequence.list.pages, sequence.list.num_tokens) ? 1 : 0);
  }

  // Whether the page that is written next is shared.
  bool must_copy(const std::vector<PageId>& pages, int64_t num_tokens) const {
    return num_tokens % page_size_ != 0 && owners_[static_cast<size_t>(pages.back())] > 1;
  }

  // The cache gave out `page`: it must be a free page or, if none is free, the oldest idle one.
  void accept_new(PageId page) {
    if (num_free() > 0) {
      ASSERT_EQ(owners_[static_cast<size_t>(page)], 0) << "page " << page << " is held";
      ASSERT_FALSE(is_idle(page)) << "page " << page << " is idle, and others are free";
    } else {
      ASSERT_FALSE(idle_.empty());
      ASSERT_EQ(page, idle_.front()) << "not the oldest idle page";
      idle_.pop_front();
      forget(page);
      ++num_evictions_;
    }
    owners_[static_cast<size_t>(page)] = 1;
    for (int64_t i = 0; i < page_size_; ++i) row(page, i) = 0;  // what was there is gone
  }

  void copy(const PageCopy& copy) {
    for (int64_t i = 0; i < page_size_; ++i) row(copy.target, i) = row(copy.source, i);
    --owners_[static_cast<size_t>(copy.source)];
  }

  // A page is written only by its sole owner, and never once it is indexed.
  void write(const PageList& list, int64_t position, uint64_t value) {
    const PageId page = list.pages[static_cast<size_t>(position / page_size_)];
    ASSERT_EQ(owners_[static_cast<size_t>(page)], 1) << "a shared page is written";
    ASSERT_FALSE(prefix_of_[static_cast<size_t>(page)]) << "an indexed page is written";
    row(page, position % page_size_) = value;
  }

  void expect_own_rows(const Sequence& sequence) {
    for (size_t i = 0; i < sequence.rows.size(); ++i) {
      const int64_t position = static_cast<int64_t>(i);
      const PageId page = sequence.list.pages[static_cast<size_t>(position / page_size_)];
      ASSERT_EQ(row(page, position % page_size_), sequence.rows[i]) << "position " << i;
    }
  }

  void index(Sequence& sequence, int64_t num_tokens) {
    if (sequence.is_stale || !has_index_) return;
    for (; (sequence.num_indexed + 1) * page_size_ <= num_tokens; ++sequence.num_indexed) {
      const size_t last_row = static_cast<size_t>((sequence.num_indexed + 1) * page_size_ - 1);
      const PageId page = sequence.list.pages[static_cast<size_t>(sequence.num_indexed)];
      if (index_.try_emplace(sequence.rows[last_row], page).second) {
        prefix_of_[static_cast<size_t>(page)] = sequence.rows[last_row];
      }
    }
  }

  void clear_index() {
    for (PageId page = 0; page < static_cast<PageId>(owners_.size()); ++page) forget(page);
    idle_.clear();
  }

  int64_t num_evictions() const { return num_evictions_; }

 private:
  uint64_t& row(PageId page, int64_t i) {
    return memory_[static_cast<size_t>(page * page_size_ + i)];
  }

  // The number of pages with at least `least` owners; with 0, of pages that have none.
  int64_t num_in_state(int64_t least) const {
    return std::count_if(owners_.begin(), owners_.end(),
                         [&](int64_t count) { return least == 0 ? count == 0 : count >= least; });
  }

  void forget(PageId page) {
    auto& prefix = prefix_of_[static_cast<size_t>(page)];
    if (prefix) index_.erase(*prefix);
    prefix.reset();
  }

  int64_t page_size_;
  bool has_index_;
  std::vector<int64_t> owners_;                     // [num_pages]
  std::vector<std::optional<uint64_t>> prefix_of_;  // [num_pages]: the row that ends the page
  std::map<uint64_t, PageId> index_;                // by that row
  std::deque<PageId> idle_;                         // oldest first
  std::vector<uint64_t> memory_;                    // [num_pages, page_size]
  int64_t num_evictions_ = 0;
};

}  // namespace tessera::cache::testing
