// Two intrusive lists over one array: a stack of free pages, a queue of idle ones.
// SPDX-License-Identifier: MIT
#include "cache/page_pool.h"

#include <limits>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::cache {
namespace {

// Checked before it sizes an allocation.
size_t checked_count(int64_t num_pages) {
  if (num_pages < 1 || num_pages > std::numeric_limits<PageId>::max()) {
    fail(concat("PagePool: num_pages is ", num_pages, "; give 1 to ",
                std::numeric_limits<PageId>::max()));
  }
  return static_cast<size_t>(num_pages);
}

}  // namespace

PagePool::PagePool(int64_t num_pages) : nodes_(checked_count(num_pages)) {
  for (PageId page = static_cast<PageId>(num_pages); page-- > 0;) push_free(page);
}

const PagePool::Node& PagePool::at(PageId page) const {
  if (page < 0 || page >= num_pages()) [[unlikely]] {
    fail(concat("PagePool: page ", page, " is not one of its ", num_pages(), " pages"));
  }
  return nodes_[static_cast<size_t>(page)];
}

PagePool::Node& PagePool::at(PageId page) {
  return const_cast<Node&>(static_cast<const PagePool*>(this)->at(page));
}

std::optional<PageId> PagePool::take_free() {
  if (first_free_ < 0) return std::nullopt;
  const PageId page = first_free_;
  Node& node = at(page);
  first_free_ = node.next;
  node.next = -1;
  node.num_references = 1;
  --num_free_;
  ++num_references_;
  return page;
}

std::optional<PageId> PagePool::oldest_idle() const {
  if (oldest_idle_ < 0) return std::nullopt;
  return oldest_idle_;
}

void PagePool::hold(PageId page) {
  Node& node = at(page);
  expects(node.num_references > 0 || node.is_idle,
          "PagePool: a free page cannot be held; take_free gives one");
  if (node.is_idle) unlink_idle(page);
  ++num_references_;
  if (++node.num_references == 2) ++num_shared_;
}

void PagePool::release(PageId page, IfUnheld then) {
  Node& node = at(page);
  expects(node.num_references > 0, "PagePool: a page nobody holds cannot be released");
  --num_references_;
  if (--node.num_references == 1) --num_shared_;
  if (node.num_references > 0) return;
  if (then == IfUnheld::free) return push_free(page);
  node.is_idle = true;
  node.previous = newest_idle_;
  node.next = -1;
  (newest_idle_ < 0 ? oldest_idle_ : at(newest_idle_).next) = page;
  newest_idle_ = page;
  ++num_idle_;
}

void PagePool::free_idle(PageId page) {
  expects(at(page).is_idle, "PagePool: free_idle takes an idle page");
  unlink_idle(page);
  push_free(page);
}

void PagePool::push_free(PageId page) {
  at(page).next = first_free_;
  first_free_ = page;
  ++num_free_;
}

void PagePool::unlink_idle(PageId page) {
  Node& node = at(page);
  (node.previous < 0 ? oldest_idle_ : at(node.previous).next) = node.next;
  (node.next < 0 ? newest_idle_ : at(node.next).previous) = node.previous;
  node.previous = node.next = -1;
  node.is_idle = false;
  --num_idle_;
}

void PagePool::check() const {
  std::vector<bool> is_free(nodes_.size(), false);
  int64_t num_free = 0;
  for (PageId page = first_free_; page >= 0; page = at(page).next) {
    expects(!is_free[static_cast<size_t>(page)], "PagePool: a page is on the free list twice");
    is_free[static_cast<size_t>(page)] = true;
    ++num_free;
  }
  int64_t num_idle = 0;
  PageId last = -1;
  for (PageId page = oldest_idle_; page >= 0; page = at(page).next) {
    expects(at(page).is_idle, "PagePool: a page on the idle list is not marked idle");
    expects(at(page).previous == last, "PagePool: the idle list does not lead back");
    expects(++num_idle <= num_pages(), "PagePool: the idle list is a ring");
    last = page;
  }
  expects(last == newest_idle_, "PagePool: the idle list does not end at the newest page");
  int64_t num_held = 0;
  int64_t num_shared = 0;
  int64_t num_references = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const int num_states = int{is_free[i]} + int{node.is_idle} + int{node.num_references > 0};
    if (num_states != 1) fail(concat("PagePool: page ", i, " is in ", num_states, " states"));
    num_held += node.num_references > 0 ? 1 : 0;
    num_shared += node.num_references > 1 ? 1 : 0;
    num_references += node.num_references;
  }
  expects_equal(num_free, num_free_, "PagePool: free pages");
  expects_equal(num_idle, num_idle_, "PagePool: idle pages");
  expects_equal(num_shared, num_shared_, "PagePool: shared pages");
  expects_equal(num_references, num_references_, "PagePool: references");
  expects_equal(num_held + num_idle + num_free, num_pages(), "PagePool: pages of all states");
}

}  // namespace tessera::cache
