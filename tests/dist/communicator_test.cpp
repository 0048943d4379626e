// What communicators promise, for a single rank and for several ranks in one process.
// SPDX-License-Identifier: MIT
#include "dist/communicator.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/dist/thread_communicator.h"

namespace tessera::testing {
namespace {

std::vector<float> values_of(const Tensor& tensor) {
  const float* data = tensor.view().as<float>();
  return {data, data + tensor.view().num_elements()};
}

Tensor make_matrix(int64_t rows, int64_t cols, float first) {
  Tensor tensor(DType::f32, {rows, cols});
  for (int64_t i = 0; i < rows * cols; ++i) {
    tensor.view().as<float>()[i] = first + static_cast<float>(i);
  }
  return tensor;
}

TEST(LocalCommunicator, IsAWorldOfOneInWhichNothingMoves) {
  dist::LocalCommunicator local;
  EXPECT_EQ(local.rank(), 0);
  EXPECT_EQ(local.size(), 1);
  const Tensor values = make_matrix(2, 3, 1.0f);
  local.all_reduce_sum(values, {});
  EXPECT_EQ(values_of(values), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  local.all_gather_columns(values, values, {});
  EXPECT_EQ(values_of(values), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(LocalCommunicator, CopiesWhereThePartIsNotTheWhole) {
  dist::LocalCommunicator local;
  const Tensor part = make_matrix(2, 3, 1.0f);
  const Tensor all = make_matrix(2, 3, 9.0f);
  local.all_gather_columns(part, all, {});
  EXPECT_EQ(values_of(all), values_of(part));
}

TEST(ThreadCommunicator, SumsAndGathersInRankOrder) {
  std::vector<std::vector<float>> sums(3), gathered(3);
  run_ranks(3, [&](dist::Communicator& communicator) {
    const auto rank = static_cast<size_t>(communicator.rank());
    const Tensor values = make_matrix(2, 2, 10.0f * static_cast<float>(rank));
    const Tensor all(DType::f32, {2, 6});
    communicator.all_gather_columns(values, all, {});
    gathered[rank] = values_of(all);
    communicator.all_reduce_sum(values, {});
    sums[rank] = values_of(values);
  });
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(gathered[rank], (std::vector<float>{0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23}));
    EXPECT_EQ(sums[rank], (std::vector<float>{30, 33, 36, 39}));
  }
}

}  // namespace
}  // namespace tessera::testing
