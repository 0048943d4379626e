// What operations say they cost is what the problems of the benches say.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>

#include "bench/instance.h"
#include "bench/problem.h"
#include "core/op_log.h"

namespace tessera::bench {
namespace {

constexpr int64_t kCostBytes = 200 * 1000;

// Lists of keys and trees are data, which a cost does not read: it counts everything.
bool has_lists(const Shape& shape) {
  for (const char* option : {"intervals", "tree", "blocks", "keys", "max_keys", "shared"}) {
    if (value_of(shape, option) != 0) return true;
  }
  return false;
}

// Problems count half of a square for a causal mask, as papers do; a cost counts every pair.
bool counts_half(const ProblemMaker& maker, const Shape& shape) {
  const int64_t q_len = value_of(shape, "q_len");
  return maker.op == "attention_prefill" && q_len == value_of(shape, "kv_len", q_len);
}

void expect_cost(const ProblemMaker& maker, RowKey key, const Shape& shape) {
  const Problem problem = maker.make(key, shape, Fill::normal, 1);
  Instance instance(problem, cpu_device());
  instance.reset();
  OpLog log;
  {
    const OpLogScope scope(log);
    instance.run(0, {});
  }
  ASSERT_EQ(log.calls.size(), 1u);
  const OpCost& cost = log.calls[0].cost;
  ASSERT_TRUE(cost.is_known) << "add cost_of for the arguments of " << maker.op
                             << " to src/ops/cost.h";
  if (maker.op == "attention_cascade" || has_lists(shape)) {
    EXPECT_GE(cost.bytes(), problem.bytes);
    EXPECT_GE(cost.flops, problem.flops);
    return;
  }
  EXPECT_DOUBLE_EQ(cost.bytes(), problem.bytes);
  if (counts_half(maker, shape)) return;
  EXPECT_DOUBLE_EQ(cost.flops, problem.flops);
}

TEST(EveryOperation, CostsWhatItsProblemsSay) {
  for (const ProblemMaker& maker : problem_makers()) {
    for (const RowKey key : maker.keys) {
      for (const Shape& shape : maker.test_shapes) {
        if (!maker.fits(key, shape)) continue;
        if (maker.make(key, shape, Fill::none, 0).storage_bytes > kCostBytes) continue;
        SCOPED_TRACE(std::string(maker.op) + " " + std::string(name(key.in)) + " " +
                     std::string(name(key.out)) + " " + to_string(shape));
        expect_cost(maker, key, shape);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::bench
