// Dry runs: calls are checked and nothing is touched. And what scale refuses.
// SPDX-License-Identifier: MIT
#include <limits>

#include "tessera/ops/copy.h"
#include "tessera/ops/scale.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Addresses that no process may touch.
TensorView nowhere(uintptr_t place, Device device, int64_t rows = 4) {
  return TensorView::contiguous(reinterpret_cast<void*>(place << 56), DType::f32, {rows, 8},
                                device);
}

TEST(DryRun, TouchesNoMemoryAndNotesWhatWouldBeRefused) {
  DryRun dry_run;
  const Context ctx{.dry_run = &dry_run};
  const TensorView x = nowhere(1, cpu_device()), out = nowhere(2, cpu_device());
  copy({.x = x, .out = out}, ctx);
  scale({.x = x, .out = x, .residual = out}, ctx);
  EXPECT_TRUE(dry_run.refusals.empty());
  copy({.x = x, .out = nowhere(2, cpu_device(), 5)}, ctx);
  ASSERT_EQ(dry_run.refusals.size(), 1u);
  EXPECT_NE(dry_run.refusals[0].find("copy: out"), std::string::npos) << dry_run.refusals[0];
  // A dry run for a GPU that the machine does not have.
  copy({.x = nowhere(1, cuda_device(63)), .out = nowhere(2, cuda_device(63))}, ctx);
  EXPECT_EQ(dry_run.refusals.size(), 2u);
}

TEST(Scale, RefusesWhatItCannotTake) {
  const Tensor x(DType::f32, {4, 8}), wider(DType::f32, {4, 16}), half(DType::f16, {4, 8});
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(refused([&] { scale({.x = x, .out = wider}); }, {"scale: out", "one shape"}));
  EXPECT_TRUE(refused([&] { scale({.x = x, .out = half}); }, {"scale: out", "f16"}));
  EXPECT_TRUE(refused([&] { scale({.x = wider.view().slice(1, 0, 8), .out = x}); },
                      {"scale: x", "contiguous"}));
  EXPECT_TRUE(
      refused([&] { scale({.x = x, .out = x, .residual = wider.view()}); }, {"scale: residual"}));
  EXPECT_TRUE(refused([&] { scale({.x = x, .out = x, .scale = kNan}); }, {"scale is nan"}));
  EXPECT_TRUE(refused([&] { scale({.x = x, .out = x, .softcap = -1.0f}); }, {"softcap is -1"}));
}

}  // namespace
}  // namespace tessera::testing
