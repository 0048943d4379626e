// The tiles of the Hopper prefill kernel: what must hold of each for it to run, and for its bits.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kernels/attention/prefill/sm90/plan.h"

namespace tessera::kernels::prefill_sm90 {
namespace {

constexpr int64_t kSharedBytes = 227 * 1024;  // that a block of Hopper may have, barriers and all
constexpr int64_t kRest = 2048;               // works and barriers, and what aligns them

int slabs(int row_bytes) { return (row_bytes + 127) / 128; }

void check(int key_dim, int value_dim, int bits, bool is_general, bool sums_in_float) {
  const PrefillShape shape =
      choose_prefill_shape(key_dim, value_dim, bits, is_general, sums_in_float);
  const std::string what = std::to_string(key_dim) + "/" + std::to_string(value_dim) + " of " +
                           std::to_string(bits) + (is_general ? " general" : "");
  const int bytes = bits / 8;
  EXPECT_EQ(shape.keys % (32 / bytes), 0) << what << ": a step of products takes 32 bytes of keys";
  EXPECT_GE(shape.stages, 2) << what;
  const int64_t q = int64_t{64} * shape.warpgroups * slabs(key_dim * bytes) * 128;
  const int64_t kv =
      int64_t{shape.keys} * 128 * (slabs(key_dim * bytes) + slabs(value_dim * bytes));
  const int64_t turned = bits == 8 ? int64_t{value_dim} * slabs(shape.keys) * 128 : 0;
  EXPECT_LE(shape.query_buffers * q + shape.stages * (kv + turned) + kRest, kSharedBytes) << what;
  // A lane loads one box, and the smallest page has 16 rows.
  EXPECT_LE(shape.keys / 16 * slabs(key_dim * bytes), 32) << what;
}

TEST(PrefillTile, EveryTileFitsAnSmAndTheSizesOfItsInstructions) {
  for (const auto& [key_dim, value_dim] :
       {std::pair{64, 64}, {96, 96}, {128, 128}, {256, 256}, {192, 128}, {192, 192}, {32, 64}}) {
    for (const bool is_general : {false, true}) check(key_dim, value_dim, 16, is_general, false);
  }
  for (const int dim : {64, 128, 256}) {
    for (const bool is_general : {false, true}) check(dim, dim, 8, is_general, false);
    if (dim < 256) check(dim, dim, 8, false, true);
  }
}

}  // namespace
}  // namespace tessera::kernels::prefill_sm90
