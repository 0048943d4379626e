// The RoPE table on a GPU, which is filled in steps.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>

#include "tessera/ops/rope.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

class RopeTableOnGpu : public testing::GpuTest {};

TEST_F(RopeTableOnGpu, HasTheRowsOfTheTableMadeOnTheCpuAndNeverMoves) {
  constexpr int64_t kPositions = 3000;
  const Tensor whole = make_rope_table(kPositions, 128, 500000.0);
  RopeTable table(kPositions, 128, 500000.0, {}, cuda_device());
  const void* const data = table.view().data;
  for (const int64_t wanted : {1, 300, 2049, 3000}) {
    table.make_rows(wanted);
    EXPECT_EQ(table.view().data, data);
    Tensor back(DType::f32, {table.num_made(), 128});
    copy_bytes(back.view().data, cpu_device(), data, cuda_device(),
               static_cast<size_t>(back.size_bytes()));
    synchronize(cuda_device());
    EXPECT_EQ(
        std::memcmp(back.view().data, whole.view().data, static_cast<size_t>(back.size_bytes())), 0)
        << wanted;
  }
  EXPECT_EQ(table.num_made(), kPositions);
}

}  // namespace
}  // namespace tessera
