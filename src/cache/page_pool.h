// Page numbers with reference counts. A page is free, held, or idle: held by nobody, but kept for
// its contents until it is evicted.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::cache {

using PageId = int32_t;

// What becomes of a page when its last holder releases it.
enum class IfUnheld : uint8_t { free, keep_idle };

// Every operation except check is O(1). All memory is allocated by the constructor.
class PagePool {
 public:
  explicit PagePool(int64_t num_pages);

  std::optional<PageId> take_free();  // with one reference; none if no page is free
  std::optional<PageId> oldest_idle() const;
  void hold(PageId page);                    // adds a reference; an idle page becomes held
  void release(PageId page, IfUnheld then);  // drops a reference; an idle page is the newest one
  void free_idle(PageId page);               // an idle page becomes free
  int num_references(PageId page) const { return at(page).num_references; }
  bool is_idle(PageId page) const { return at(page).is_idle; }
  int64_t num_pages() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_idle() const { return num_idle_; }
  int64_t num_shared() const { return num_shared_; }  // pages with more than one reference
  int64_t total_references() const { return num_references_; }
  // Refuses if lists and counts disagree. Walks every page.
  void check() const;

 private:
  struct Node {
    int32_t num_references = 0;
    PageId previous = -1;  // in the idle list, oldest first
    PageId next = -1;      // in the idle list or the free list
    bool is_idle = false;
  };
  const Node& at(PageId page) const;
  Node& at(PageId page);
  void push_free(PageId page);
  void unlink_idle(PageId page);

  std::vector<Node> nodes_;
  PageId first_free_ = -1;
  PageId oldest_idle_ = -1;
  PageId newest_idle_ = -1;
  int64_t num_free_ = 0;
  int64_t num_idle_ = 0;
  int64_t num_shared_ = 0;
  int64_t num_references_ = 0;
};

}  // namespace tessera::cache
