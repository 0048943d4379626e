// Tensors that are not aligned to their elements are refused by every operation, before a kernel
// that would fault could be launched.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bench/problem.h"
#include "tests/core/message_of.h"

namespace tessera::bench {
namespace {

// The operands on a GPU, where nothing is, which a check does not mind; one of them a byte further.
std::vector<TensorView> place(const Problem& problem, size_t moved) {
  constexpr uintptr_t kApart = uintptr_t{1} << 42;
  std::vector<TensorView> views;
  for (size_t i = 0; i < problem.operands.size(); ++i) {
    const uintptr_t address = (i + 1) * kApart + (i == moved ? 1 : 0);
    views.push_back(problem.operands[i].place(reinterpret_cast<void*>(address), cuda_device()));
  }
  return views;
}

bool is_empty(const Problem& problem) {
  return std::ranges::any_of(problem.operands, [](const Operand& operand) {
    return std::ranges::find(operand.shape, 0) != operand.shape.end();
  });
}

// Whether the call takes the operand. A cascade counts its own keys: the lengths of all are for the
// reference on the CPU. Scales of heads belong to no page.
bool is_taken(const ProblemMaker& maker, const Operand& operand) {
  if (maker.op == "attention_cascade") return operand.name != "seq_lens";
  if (maker.op == "kv_copy_pages")
    return !(operand.name.ends_with("_scales") && operand.shape.size() == 1);
  return true;
}

TEST(EveryOperation, RefusesEachOperandThatIsNotAligned) {
  for (const ProblemMaker& maker : problem_makers()) {
    int num_refused = 0;
    for (const RowKey key : maker.keys) {
      for (const Shape& shape : maker.test_shapes) {
        if (!maker.fits(key, shape)) continue;
        const Problem problem = maker.make(key, shape, Fill::none, 0);
        if (is_empty(problem)) continue;
        for (size_t i = 0; i < problem.operands.size(); ++i) {
          const std::vector<TensorView> views = place(problem, i);
          if (storage_bytes(views[i].dtype, 1) == 1 || !is_taken(maker, problem.operands[i]))
            continue;
          const std::string message =
              ::tessera::testing::message_of([&] { problem.call(views, Context{}); });
          ASSERT_NE(message.find("copy it to memory that is aligned"), std::string::npos)
              << maker.op << " " << to_string(shape) << ", " << problem.operands[i].name << ": "
              << message;
          ++num_refused;
        }
      }
    }
    EXPECT_GT(num_refused, 0) << maker.op;
  }
}

}  // namespace
}  // namespace tessera::bench
