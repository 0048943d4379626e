// Calls of the C ABI with the first allocation failing, then the second, and so on: each returns
// TESSERA_OUT_OF_MEMORY with a message, and the next call succeeds.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/c_api/dl_tensor.h"
#include "tests/c_api/expect.h"
#include "tests/memory/failing_allocator.h"

namespace tessera::testing {
namespace {

// Runs `call` on new threads, which have no memory from earlier calls, until no allocation fails.
void expect_clean_failures(const std::function<TesseraStatus()>& call, std::vector<float>& out) {
  expect_ok(call());
  const std::vector<float> want = out;
  bool has_failed = true;
  int64_t n = 1;
  for (; has_failed; ++n) {
    SCOPED_TRACE(::testing::Message() << "allocation " << n);
    std::thread caller([&] {
      fail_allocation(n);
      const TesseraStatus status = call();
      has_failed = stop_failing();
      if (has_failed && status != TESSERA_OK) {
        EXPECT_EQ(status, TESSERA_OUT_OF_MEMORY) << tessera_last_error();
        EXPECT_NE(std::strlen(tessera_last_error()), 0u);
      }
      std::ranges::fill(out, 0.0f);
      expect_ok(call());
      EXPECT_EQ(out, want);
    });
    caller.join();
    ASSERT_FALSE(::testing::Test::HasFailure());
  }
  EXPECT_GT(n, 2) << "nothing was allocated, so nothing was tested";
}

// Rows that are too long to be copied on a stack, and enough of them for several threads.
struct Numbers : Array<float> {
  explicit Numbers(std::vector<int64_t> sizes) : Array(std::move(sizes)) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3.0f;
  }
};

TEST(OutOfMemoryInC, RmsNorm) {
  Numbers x({64, 1000}), weight({1000}), out({64, 1000});
  expect_clean_failures(
      [&] {
        return tessera_rms_norm(x, weight, out, nullptr, nullptr, nullptr, 1e-5f,
                                TESSERA_DTYPE_AUTO, nullptr);
      },
      out.values);
}

TEST(OutOfMemoryInC, Gemm) {
  Numbers a({40, 101}), b({200, 101}), residual({40, 200}), out({40, 200});
  expect_clean_failures(
      [&] {
        return tessera_gemm(a, b, out, nullptr, residual, nullptr, nullptr, TESSERA_SILU, 0,
                            TESSERA_DTYPE_AUTO, nullptr);
      },
      out.values);
}

TEST(OutOfMemoryInC, Attention) {
  Numbers q({2, 100, 4, 32}), k({2, 100, 4, 32}), v({2, 100, 4, 32}), out({2, 100, 4, 32});
  TesseraAttentionArgs args{};
  args.struct_size = sizeof args;
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = out;
  expect_clean_failures([&] { return tessera_attention_prefill(&args, nullptr); }, out.values);
}

TEST(OutOfMemoryInC, ARefusalWithoutMemoryForItsWords) {
  Numbers x({4, 8}), weight({9}), out({4, 8});
  bool has_failed = true;
  for (int64_t n = 1; has_failed; ++n) {
    fail_allocation(n);
    const TesseraStatus status = tessera_rms_norm(x, weight, out, nullptr, nullptr, nullptr, 1e-5f,
                                                  TESSERA_DTYPE_AUTO, nullptr);
    has_failed = stop_failing();
    ASSERT_TRUE(status == TESSERA_ERROR || status == TESSERA_OUT_OF_MEMORY) << status;
    ASSERT_NE(std::strlen(tessera_last_error()), 0u);
  }
}

}  // namespace
}  // namespace tessera::testing
