// A million random operations on small caches, each compared with the model.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>

#include "tests/cache/page_cache_model.h"

namespace tessera::cache::testing {
namespace {

struct Shape {
  const char* name;
  int64_t num_pages;
  int64_t page_size;
  size_t max_sequences;
  int64_t max_tokens;  // of one sequence
  bool has_index;
  friend void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }
};

// All except many_idle are too small for their sequences, so that grow fails often.
constexpr Shape kShapes[] = {
    {"pages_of_4", 24, 4, 6, 40, true},    {"pages_of_1", 10, 1, 6, 10, true},
    {"pages_of_16", 32, 16, 8, 200, true}, {"pages_of_2", 16, 2, 8, 20, true},
    {"many_idle", 200, 2, 3, 30, true},    {"no_index", 24, 4, 6, 40, false},
};
constexpr int64_t kOperations = 250'000;  // of each shape: 1.5 million in all

class RandomOperations {
 public:
  RandomOperations(const Shape& shape, uint32_t seed)
      : shape_(shape),
        random_(seed),
        cache_({.num_pages = shape.num_pages,
                .page_size = shape.page_size,
                .use_prefix_index = shape.has_index,
                .hash_key = {seed, 2}}),
        model_(shape.num_pages, shape.page_size, shape.has_index) {}

  void step() {
    const int64_t choice = below(1000);
    if (choice == 0) return clear();
    if (sequences_.empty() || (choice < 120 && sequences_.size() < shape_.max_sequences)) {
      return start();
    }
    Sequence& sequence = sequences_[static_cast<size_t>(below(std::ssize(sequences_)))];
    if (choice < 200 && sequences_.size() < shape_.max_sequences) return fork(sequence);
    if (choice < 280) return release(sequence);
    if (choice < 430) return index(sequence);
    if (choice < 480) return look();
    grow(sequence);
  }

  void check() {
    std::vector<const PageList*> lists;
    for (const Sequence& sequence : sequences_) {
      lists.push_back(&sequence.list);
      model_.expect_own_rows(sequence);
    }
    cache_.check(lists);
  }

  void compare_counts() const {
    const CacheStats stats = cache_.stats();
    ASSERT_EQ(stats.num_held, model_.num_held());
    ASSERT_EQ(stats.num_idle, model_.num_idle());
    ASSERT_EQ(stats.num_free, model_.num_free());
    ASSERT_EQ(stats.num_shared, model_.num_shared());
    ASSERT_EQ(stats.num_references, model_.num_references());
    ASSERT_EQ(stats.num_evictions, model_.num_evictions());
    ASSERT_EQ(stats.num_copies, num_copies_);
    ASSERT_EQ(stats.num_hit_tokens, num_hit_tokens_);
    ASSERT_EQ(cache_.num_available(), model_.num_available());
  }

  // Checks that the run exercised everything it is meant to.
  void expect_all_was_tried() const {
    EXPECT_TRUE(num_copies_ > 1000 || shape_.page_size == 1) << num_copies_;
    EXPECT_TRUE(num_refused_ > 1000 || shape_.num_pages == 200) << num_refused_;
    if (!shape_.has_index) return;
    EXPECT_GT(num_hit_tokens_, 1000);
    EXPECT_GT(model_.num_evictions(), 1000);
  }

 private:
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  // Mostly the same token, so that prefixes coincide often.
  int32_t random_token() { return below(10) == 0 ? 1 : 0; }

  std::vector<int32_t> random_tokens(int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i) {
      tokens.push_back(random_token());
    }
    return tokens;
  }

  std::string random_salt() { return below(4) == 0 ? "b" : ""; }

  void look() {
    const std::vector<int32_t> tokens = random_tokens(below(shape_.max_tokens));
    const std::string salt = random_salt();
    const std::vector<PageId> pages = model_.find(tokens, salt);
    const PrefixMatch match = cache_.find_prefix(tokens, salt);
    ASSERT_EQ(match.num_tokens, std::ssize(pages) * shape_.page_size);
    ASSERT_EQ(match.num_idle_pages,
              std::ranges::count_if(pages, [&](PageId page) { return model_.is_idle(page); }));
  }

  void start() {
    Sequence sequence;
    sequence.salt = random_salt();
    std::vector<int32_t> tokens = random_tokens(1 + below(shape_.max_tokens));
    const std::vector<PageId> pages = model_.find(tokens, sequence.salt);
    ASSERT_EQ(cache_.take_prefix(tokens, sequence.salt, sequence.list),
              std::ssize(pages) * shape_.page_size);
    ASSERT_EQ(sequence.list.pages, pages);
    for (const PageId page : pages) model_.hold(page);
    num_hit_tokens_ += sequence.list.num_tokens;
    tokens.resize(static_cast<size_t>(sequence.list.num_tokens));
    uint64_t row = first_row(sequence.salt);
    for (const int32_t token : tokens) sequence.rows.push_back(row = row_after(row, token));
    sequence.tokens = std::move(tokens);
    sequence.num_indexed = std::ssize(pages);
    model_.expect_own_rows(sequence);
    sequences_.push_back(std::move(sequence));
  }

  void grow(Sequence& sequence) {
    const int64_t before = sequence.list.num_tokens;
    const int64_t after = std::min(before + below(2 * shape_.page_size + 2) - 1, shape_.max_tokens);
    const std::vector<PageId> pages = sequence.list.pages;
    std::vector<PageCopy> copies;
    const bool is_larger = after > before;
    const int64_t need = is_larger ? model_.pages_to_grow(sequence, after) : 0;
    ASSERT_EQ(cache_.pages_to_grow(sequence.list, after), need);
    const bool fits = need <= model_.num_available();
    const bool copies_last = is_larger && fits && model_.must_copy(pages, before);
    ASSERT_EQ(cache_.grow(sequence.list, after, copies), fits);
    ASSERT_EQ(std::ssize(copies), copies_last ? 1 : 0);
    if (!fits || !is_larger) {
      num_refused_ += fits ? 0 : 1;
      ASSERT_EQ(sequence.list.pages, pages);
      ASSERT_EQ(sequence.list.num_tokens, before);
      return;
    }
    if (copies_last) {
      ASSERT_EQ(copies[0].source, pages.back());
      ASSERT_EQ(copies[0].target, sequence.list.pages[pages.size() - 1]);
      ASSERT_NO_FATAL_FAILURE(model_.accept_new(copies[0].target));
      model_.copy(copies[0]);
      ++num_copies_;
    }
    for (size_t i = pages.size(); i < sequence.list.pages.size(); ++i) {
      ASSERT_NO_FATAL_FAILURE(model_.accept_new(sequence.list.pages[i]));
    }
    uint64_t row = sequence.rows.empty() ? first_row(sequence.salt) : sequence.rows.back();
    for (int64_t position = before; position < after; ++position) {
      sequence.tokens.push_back(random_token());
      sequence.rows.push_back(row = row_after(row, sequence.tokens.back()));
      ASSERT_NO_FATAL_FAILURE(model_.write(sequence.list, position, row));
    }
  }

  // Indexes the whole sequence, or only a prefix of it, as after a chunk.
  void index(Sequence& sequence) {
    const int64_t num_tokens = std::ssize(sequence.tokens);
    const int64_t num_written = below(2) == 0 ? num_tokens : below(num_tokens + 1);
    const std::span<const int32_t> written(sequence.tokens.data(),
                                           static_cast<size_t>(num_written));
    cache_.index_full_pages(sequence.list, written, sequence.salt);
    model_.index(sequence, num_written);
    ASSERT_EQ(sequence.list.num_indexed, sequence.num_indexed);
  }

  void fork(const Sequence& sequence) {
    Sequence copy = sequence;
    copy.list = cache_.fork(sequence.list);
    for (const PageId page : copy.list.pages) model_.hold(page);
    sequences_.push_back(std::move(copy));
  }

  void release(Sequence& sequence) {
    ASSERT_NO_FATAL_FAILURE(model_.expect_own_rows(sequence));
    model_.release(sequence.list.pages);
    cache_.release(sequence.list);
    std::swap(sequence, sequences_.back());
    sequences_.pop_back();
  }

  void clear() {
    cache_.clear_index();
    model_.clear_index();
    // A sequence without pages has nothing from before the index was cleared.
    for (Sequence& sequence : sequences_) sequence.is_stale = !sequence.list.pages.empty();
  }

  Shape shape_;
  std::mt19937_64 random_;
  PageCache cache_;
  PageCacheModel model_;
  std::vector<Sequence> sequences_;
  int64_t num_copies_ = 0;
  int64_t num_refused_ = 0;
  int64_t num_hit_tokens_ = 0;
};

class PageCacheRandom : public ::testing::TestWithParam<Shape> {};

TEST_P(PageCacheRandom, AgreesWithTheModelAfterEveryOperation) {
  RandomOperations operations(GetParam(), /*seed=*/11);
  for (int64_t i = 0; i < kOperations; ++i) {
    operations.step();
    operations.compare_counts();
    if (i % 256 == 0) operations.check();
    if (HasFatalFailure()) FAIL() << "at operation " << i;
  }
  operations.check();
  operations.expect_all_was_tried();
}

INSTANTIATE_TEST_SUITE_P(Shapes, PageCacheRandom, ::testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tessera::cache::testing
