// Page numbers with reference counts: free, held, or idle (kept for a prefix, first out when old).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::cache {

using PageId = int32_t;

// Every operation but check is O(1); all memory is taken at the start.
class PagePool {
 public:
  explicit PagePool(int64_t num_pages);

  std::optional<PageId> take_free();  // held once; nothing where no page is free
  std::optional<PageId> oldest_idle() const;
  void hold(PageId page);  // one reference more; an idle page becomes held
  // One reference less. At none left the page is free, or idle (as the newest) if `keep`.
  void release(PageId page, bool keep);
  void free_idle(PageId page);  // an idle page becomes free
  int num_references(PageId page) const { return at(page).num_references; }
  bool is_idle(PageId page) const { return at(page).is_idle; }
  int64_t num_pages() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t num_free() const { return num_free_; }
  int64_t num_idle() const { return num_idle_; }
  int64_t num_shared() const { return num_shared_; }            // pages held more than once
  int64_t total_references() const { return num_references_; }  // over all pages
  // Refuses if the lists and the counts disagree; walks every page.
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
