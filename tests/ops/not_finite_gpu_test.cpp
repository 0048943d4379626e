// Keys and values that are not finite on a GPU: every attention kernel shows them, none drops them.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bench/instance.h"
#include "bench/problem.h"
#include "bench/verify.h"
#include "core/library.h"
#include "ops/registry.h"
#include "tests/gpu.h"

namespace tessera {
namespace {

using bench::Fill;
using bench::Instance;
using bench::Operand;
using bench::Problem;
using bench::Shape;

constexpr int64_t kBadKey = 20;  // of the first sequence and of its first head of keys
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class NotFiniteOnGpu : public testing::GpuTest {
 protected:
  static size_t find(const Problem& problem, std::string_view name) {
    size_t i = 0;
    while (i < problem.operands.size() && problem.operands[i].name != name) ++i;
    return i;
  }
  static bool has(const Problem& problem, std::string_view name) {
    return find(problem, name) < problem.operands.size();
  }

  // Sets the element at `index` of an operand, whatever its strides.
  static void set(const Problem& problem, std::string_view name, const std::vector<int64_t>& index,
                  float value) {
    const Operand& operand = problem.operands[find(problem, name)];
    const TensorView view = operand.place(operand.host.view().data, cpu_device());
    ASSERT_EQ(static_cast<size_t>(view.rank), index.size());
    store_from_float(view, index, value);
  }

  // The first `count` elements of an output, which is dense.
  static std::vector<float> first_of(const Instance& instance, std::string_view name,
                                     int64_t count) {
    const Tensor storage = instance.download(find(instance.problem(), name));
    const Operand& operand = instance.problem().operands[find(instance.problem(), name)];
    const TensorView view = operand.place(storage.view().data, cpu_device());
    std::vector<float> values;
    std::vector<int64_t> index(static_cast<size_t>(view.rank), 0);
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = i;
      for (int d = view.rank - 1; d >= 0; --d) {
        index[static_cast<size_t>(d)] = rest % view.size(d);
        rest /= view.size(d);
      }
      values.push_back(load_as_float(view, index));
    }
    return values;
  }

  // Calls test(instance, row) after each row of the operation that takes the problem has run.
  template <class Test>
  static int run_rows(std::string_view op, RowKey key, const Problem& problem, const Test& test) {
    int num_run = 0;
    const int capability = device_info(cuda_device()).compute_capability;
    for (const ops::RowInfo& row : ops::all_rows()) {
      if (row.op != op || row.key != key || !runs_on(row.library, capability)) continue;
      const Context ctx{.row = row.name};
      if (!bench::is_taken(problem, cuda_device(), ctx)) continue;
      SCOPED_TRACE(row.name + " " + bench::to_string(problem.shape));
      Instance instance(problem, cuda_device());
      instance.reset();
      instance.run(0, ctx);
      synchronize(cuda_device());
      test(instance);
      ++num_run;
    }
    return num_run;
  }
};

// Formats by the numbers of a decode shape: plain, e4m3, e5m2, i8, u8, i4, i4 by column. What was
// not finite is NaN in the cache, as a code or as the scale of its row (kv_append).
TEST_F(NotFiniteOnGpu, KeysAndValuesReachTheResultOfDecodeInEveryFormat) {
  const bench::ProblemMaker& maker = *bench::find_maker("attention_decode");
  int num_run = 0;
  for (const RowKey key : maker.keys) {
    for (const KvFormatTraits& format : kKvFormats) {
      for (const int64_t group : {1, 4, 8}) {
        for (const int64_t kv_len : {40, 3000}) {  // one piece, and several that are merged
          for (const bool is_key : {true, false}) {
            Shape shape{{"batch", 2},    {"kv_len", kv_len}, {"heads", 2 * group},
                        {"kv_heads", 2}, {"d", 128},         {"lse", 1}};
            if (format.has_tail()) shape.emplace_back("page", 64);
            shape.emplace_back("k_format", bench::option(format.format));
            const Problem problem = maker.make(key, shape, Fill::normal, 3);
            const std::string pages = is_key ? "k_pages" : "v_pages";
            const std::string scales = is_key ? "k_scales" : "v_scales";
            if (format.has_tail()) {
              // Pages are shuffled, so the scales of all groups and rows are set.
              const Operand& all = problem.operands[find(problem, scales)];
              for (int64_t i = 0; i < all.host.view().num_elements(); ++i) {
                all.host.view().as<F16>()[i].bits = 0x7fff;
              }
            } else if (has(problem, scales)) {
              set(problem, scales, {0, kBadKey, 0, 0}, kNan);
            } else {
              set(problem, pages, {0, kBadKey, 0, 5}, kNan);
            }
            const bench::Reference reference(maker, key, problem, int64_t{1} << 40);
            num_run += run_rows("attention_decode", key, problem, [&](const Instance& instance) {
              EXPECT_EQ(reference.check(instance), "");
              const bool is_whole_row = is_key || traits(format.values).scales == KvScales::row;
              const std::vector<float> out = first_of(instance, "out", group * 128);
              for (size_t i = 0; i < out.size(); ++i) {
                if (is_whole_row || i % 128 == 5) {
                  ASSERT_TRUE(std::isnan(out[i])) << (is_key ? "key " : "value ") << i;
                }
              }
              if (!is_key) return;
              for (const float lse : first_of(instance, "lse", group)) {
                ASSERT_TRUE(std::isnan(lse));
              }
            });
          }
        }
      }
    }
  }
  EXPECT_GT(num_run, 100);
}

// Queries that do not see the key may still be NaN: 0 times NaN is not 0 in a tensor core.
TEST_F(NotFiniteOnGpu, KeysAndValuesReachTheResultOfPrefill) {
  const bench::ProblemMaker& maker = *bench::find_maker("attention_prefill");
  constexpr int64_t kHeads = 4, kDim = 128;
  int num_run = 0;
  for (const RowKey key : maker.keys) {
    for (const int64_t length : {33, 300}) {
      for (const bool is_key : {true, false}) {
        const Shape shape{{"batch", 1},    {"q_len", length}, {"heads", kHeads},
                          {"kv_heads", 2}, {"d", kDim},       {"lse", 1}};
        if (!maker.fits(key, shape)) continue;
        const Problem problem = maker.make(key, shape, Fill::normal, 3);
        set(problem, is_key ? "k" : "v", {0, kBadKey, 0, 5}, kNan);
        num_run += run_rows("attention_prefill", key, problem, [&](const Instance& instance) {
          const std::vector<float> out = first_of(instance, "out", length * kHeads * kDim);
          for (size_t i = 0; i < out.size(); ++i) {
            if (i / kDim % kHeads >= 2 || (!is_key && i % kDim != 5)) continue;
            ASSERT_TRUE(std::isnan(out[i])) << (is_key ? "key " : "value ") << i;
          }
          if (!is_key) return;
          int num_nan = 0;
          for (const float lse : first_of(instance, "lse", length * kHeads)) {
            num_nan += std::isnan(lse) ? 1 : 0;
          }
          EXPECT_EQ(num_nan, length * kHeads / 2);
        });
      }
    }
  }
  EXPECT_GT(num_run, 10);
}

}  // namespace
}  // namespace tessera
