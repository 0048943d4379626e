// Pruning to 2:4: which elements stay, where the metadata puts them, and the way back.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "cpu/gemm.h"
#include "tessera/core/convert.h"

namespace tessera::testing {
namespace {

struct Pruned {
  Tensor values;
  Tensor meta;
};

Pruned prune(const TensorView& w) {
  const int64_t n = w.size(0), k = w.size(1);
  Pruned out{Tensor(w.dtype, {n, k / 2}), Tensor(DType::i32, {(n + 31) / 32, k / 32, 32})};
  cpu::prune_2_4({.w = w, .out_values = out.values, .out_meta = out.meta});
  return out;
}

Tensor random_weight(DType dtype, int64_t n, int64_t k) {
  std::mt19937 generator(5);
  Tensor w(dtype, {n, k});
  for (int64_t i = 0; i < n * k; ++i) {
    const float value = static_cast<float>(generator() % 2001) - 1000.0f;
    w.view().as<uint16_t>()[i] =
        dtype == DType::bf16 ? from_float<Bf16>(value).bits : from_float<F16>(value).bits;
  }
  return w;
}

// Four weights at the front of a row of 32; the rest are zeros.
Pruned prune_four(std::vector<float> four) {
  Tensor w(DType::bf16, {1, 32});
  for (size_t i = 0; i < 32; ++i) {
    w.view().as<Bf16>()[i] = from_float<Bf16>(i < 4 ? four[i] : 0.0f);
  }
  return prune(w);
}
std::vector<float> kept_of(const Pruned& pruned) {
  return {to_float(pruned.values.view().as<Bf16>()[0]),
          to_float(pruned.values.view().as<Bf16>()[1])};
}
int places_of(const Pruned& pruned) { return pruned.meta.view().as<int32_t>()[0] & 15; }

TEST(Prune, KeepsTheTwoLargestMagnitudesInOrder) {
  const Pruned pruned = prune_four({1.0f, -8.0f, 2.0f, 3.0f});
  EXPECT_EQ(kept_of(pruned), (std::vector<float>{-8.0f, 3.0f}));
  EXPECT_EQ(places_of(pruned), 1 | 3 << 2);
}

TEST(Prune, KeepsTheFirstOfEqualMagnitudes) {
  EXPECT_EQ(places_of(prune_four({0, 0, 0, 0})), 0 | 1 << 2);
  EXPECT_EQ(places_of(prune_four({1, -2, 2, 2})), 1 | 2 << 2);
  EXPECT_EQ(places_of(prune_four({1, 1, 1, 2})), 0 | 3 << 2);
}

TEST(Prune, KeepsInfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(places_of(prune_four({5, -inf, std::nanf(""), 7})), 1 | 2 << 2);
}

// As mma.sp reads it: lane 4 g + t of the warp that owns a block, t / 2 choosing among its two
// tiles of 16 rows and t % 2 among the halves of its columns.
TEST(Prune, PutsTheMetadataWhereTheLanesOfAWarpReadIt) {
  const int64_t n = 64, k = 96;
  const Tensor w = random_weight(DType::f16, n, k);
  const Pruned pruned = prune(w);
  for (int64_t block_row = 0; block_row < 2; ++block_row) {
    for (int64_t block_col = 0; block_col < 3; ++block_col) {
      for (int64_t lane = 0; lane < 32; ++lane) {
        const int64_t word_idx = (block_row * 3 + block_col) * 32 + lane;
        const uint32_t word = pruned.meta.view().as<uint32_t>()[word_idx];
        for (int64_t bit = 0; bit < 32; bit += 2) {
          const int64_t t = lane % 4;
          const int64_t row = block_row * 32 + t / 2 * 16 + lane / 4 + (bit >= 16 ? 8 : 0);
          const int64_t four = block_col * 32 + t % 2 * 16 + bit % 16 / 4 * 4;
          const int64_t col = four + (word >> bit & 3);
          const int64_t kept = row * k / 2 + four / 2 + bit / 2 % 2;
          ASSERT_EQ(w.view().as<uint16_t>()[row * k + col],
                    pruned.values.view().as<uint16_t>()[kept])
              << "lane " << lane << " bit " << bit;
        }
      }
    }
  }
}

TEST(Prune, NamesPlacesInIncreasingOrderBeyondTheLastRowToo) {
  const Pruned pruned = prune(random_weight(DType::bf16, 5, 64));
  ASSERT_EQ(pruned.meta.view().num_elements(), 64);
  for (int64_t i = 0; i < 64; ++i) {
    const uint32_t word = pruned.meta.view().as<uint32_t>()[i];
    for (int bit = 0; bit < 32; bit += 4) {
      EXPECT_LT(word >> bit & 3, word >> (bit + 2) & 3) << "word " << i << " bit " << bit;
    }
  }
}

TEST(Expand, RestoresWhatWasKeptAndZeroesTheRest) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const int64_t n = 37, k = 160;
    const Tensor w = random_weight(dtype, n, k);
    const Pruned pruned = prune(w);
    const Tensor dense(dtype, {n, k});
    cpu::expand_2_4({.values = pruned.values, .meta = pruned.meta, .out = dense});
    const auto* was = w.view().as<uint16_t>();
    const auto* is = dense.view().as<uint16_t>();
    for (int64_t four = 0; four < n * k; four += 4) {
      int num_kept = 0, least_kept = 0xffff, most_lost = 0;
      for (int64_t i = four; i < four + 4; ++i) {
        const int magnitude = was[i] & 0x7fff;
        if (is[i] == was[i] && magnitude != 0) {
          ++num_kept;
          least_kept = std::min(least_kept, magnitude);
        } else {
          ASSERT_EQ(is[i], 0);
          most_lost = std::max(most_lost, magnitude);
        }
      }
      EXPECT_LE(num_kept, 2);
      EXPECT_GE(least_kept, most_lost);
    }
  }
}

TEST(Gemm24, IsTheProductWithTheExpandedWeight) {
  const int64_t m = 3, n = 40, k = 64;
  const Pruned pruned = prune(random_weight(DType::bf16, n, k));
  const Tensor a = random_weight(DType::bf16, m, k);
  const Tensor dense(DType::bf16, {n, k}), got(DType::bf16, {m, n}), want(DType::bf16, {m, n});
  cpu::expand_2_4({.values = pruned.values, .meta = pruned.meta, .out = dense});
  cpu::gemm({.a = a, .b = dense, .out = want});
  cpu::gemm_2_4({.a = a, .values = pruned.values, .meta = pruned.meta, .out = got});
  for (int64_t i = 0; i < m * n; ++i) {
    EXPECT_EQ(got.view().as<uint16_t>()[i], want.view().as<uint16_t>()[i]) << i;
  }
}

}  // namespace
}  // namespace tessera::testing
