// Arguments embedding, copy, quantize, dequantize and the reductions refuse.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <functional>
#include <limits>

#include "tessera/ops/copy.h"
#include "tessera/ops/embedding.h"
#include "tessera/ops/quantize.h"
#include "tessera/ops/reduce.h"
#include "tests/ops/refusal.h"

namespace tessera::testing {
namespace {

// Whether the good call is taken and the changed one refused, by the call and by supports().
template <class Args>
::testing::AssertionResult refused_with(const Args& good, void (*call)(const Args&, const Context&),
                                        const std::function<void(Args&)>& change,
                                        std::initializer_list<std::string_view> words) {
  if (!supports(good)) return ::testing::AssertionFailure() << "the unchanged call is refused";
  Args args = good;
  change(args);
  if (supports(args)) return ::testing::AssertionFailure() << "supports() says yes";
  return refused([&] { call(args, {}); }, words);
}

TEST(RefusedEmbedding, WrongTensors) {
  const Tensor table(DType::bf16, {10, 8}), ids(DType::i64, {3}), out(DType::bf16, {3, 8});
  const Tensor four(DType::i64, {4}), half(DType::f16, {3, 8}), thin(DType::bf16, {3, 7});
  const EmbeddingArgs good{.table = table, .ids = ids, .out = out};
  const auto refuses = [&](const std::function<void(EmbeddingArgs&)>& change,
                           std::initializer_list<std::string_view> words) {
    return refused_with<EmbeddingArgs>(good, &embedding, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.table = ids; }, {"embedding: table is i64[3]", "bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.table.rank = 1; }, {"embedding: table", "must be 2"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.ids = four; },
                      {"embedding: ids is i64[4]", "must have 3", "row of out"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.ids.dtype = DType::f32; }, {"embedding: ids", "i32, i64"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = half; }, {"embedding: out is f16", "table is bf16"}));
  EXPECT_TRUE(
      refuses([&](auto& a) { a.out = thin; }, {"embedding: out is bf16[3, 7]", "must be 8 wide"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = table.view().slice(0, 2, 5); },
                      {"embedding: out", "shares memory with", "embedding: table"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.ids = on_gpu(ids); }, {"embedding: ids is on cuda:3"}));
}

TEST(RefusedEmbedding, AnIdOutsideTheTableChangesNothing) {
  const Tensor table(DType::f32, {10, 2}), ids(DType::i64, {2}), out(DType::f32, {2, 2});
  ids.view().as<int64_t>()[0] = 1;
  out.view().as<float>()[0] = 5.0f;
  for (int64_t id : {int64_t{-1}, int64_t{10}, int64_t{1} << 40}) {
    ids.view().as<int64_t>()[1] = id;
    EXPECT_TRUE(refused([&] { embedding({.table = table, .ids = ids, .out = out}); },
                        {"embedding: ids[1] is " + std::to_string(id), "10 rows", "0 to 9"}));
    EXPECT_EQ(out.view().as<float>()[0], 5.0f);
  }
}

TEST(RefusedCopy, WrongTensors) {
  const Tensor x(DType::f32, {4, 6}), out(DType::f32, {4, 6}), other(DType::f32, {6, 4});
  const Tensor ints(DType::i32, {4, 6}), nibbles(DType::i4, {4, 6});
  const CopyArgs good{.x = x, .out = out};
  const auto refuses = [&](const std::function<void(CopyArgs&)>& change,
                           std::initializer_list<std::string_view> words) {
    return refused_with<CopyArgs>(good, &copy, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.out = other; },
                      {"copy: out is f32[6, 4]", "x is f32[4, 6]", "one shape"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = ints; }, {"copy: out is i32", "x is f32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.x = nibbles; }, {"copy: x is i4[4, 6]", "one of f32"}));
  const Tensor halves(DType::bf16, {4, 6}), turned(DType::bf16, {6, 4});
  copy({.x = x, .out = halves});
  EXPECT_TRUE(refuses([&](auto& a) { a.out = turned.view().transposed(0, 1); },
                      {"copy: out is bf16[4, 6]", "contiguous"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = x; }, {"copy: out", "shares memory with", "copy: x"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out.strides[0] = 0; }, {"copy: out", "stride 0"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = on_gpu(out); }, {"copy: out is on cuda:3"}));
}

class RefusedQuantize : public ::testing::Test {
 protected:
  Tensor x{DType::f16, {4, 12}}, scale{DType::f32, {4, 1}}, zero{DType::i32, {4, 1}};
  Tensor i8{DType::i8, {4, 12}}, u8{DType::u8, {4, 12}}, i4{DType::i4, {4, 12}};

  // The rule broken in quantising and, with x and out exchanged, in dequantising.
  ::testing::AssertionResult refuses(const Tensor& codes,
                                     const std::optional<TensorView>& zero_point,
                                     const std::function<void(QuantizeArgs&)>& change,
                                     std::initializer_list<std::string_view> words) {
    const QuantizeArgs good{.x = x, .out = codes, .scale = scale, .zero_point = zero_point};
    const auto result = refused_with<QuantizeArgs>(good, &quantize, change, words);
    if (!result) return result;
    const auto reversed = [](const QuantizeArgs& a) {
      return DequantizeArgs{.x = a.out, .scale = a.scale, .zero_point = a.zero_point, .out = a.x};
    };
    const auto change_reversed = [&](DequantizeArgs& args) {
      QuantizeArgs changed = good;
      change(changed);
      args = reversed(changed);
    };
    return refused_with<DequantizeArgs>(reversed(good), &dequantize, change_reversed, words);
  }
};

TEST_F(RefusedQuantize, TypesThatHoldNoCodes) {
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.out.dtype = DType::i32; },
                      {"i32[4, 12]", "e4m3, e5m2, i8, u8, i4"}));
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.x.dtype = DType::u8; }, {"u8", "f32, f16, bf16"}));
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.scale.dtype = DType::bf16; },
                      {"quantize: scale is bf16[4, 1]", "f32"}));
}

TEST_F(RefusedQuantize, ZeroPointsThatDoNotFitTheType) {
  EXPECT_TRUE(refuses(u8, zero, [&](auto& a) { a.zero_point.reset(); },
                      {"is u8", "no zero_point", "use i8"}));
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.zero_point = zero; },
                      {"is i8", "only u8 and i4", "leave it out"}));
  const Tensor long_zero(DType::i32, {5, 1}), float_zero(DType::f32, {4, 1});
  EXPECT_TRUE(refuses(u8, zero, [&](auto& a) { a.zero_point = long_zero; },
                      {"zero_point is i32[5, 1]", "scale is f32[4, 1]"}));
  EXPECT_TRUE(
      refuses(i4, zero, [&](auto& a) { a.zero_point = float_zero; }, {"zero_point is f32", "i32"}));
}

TEST_F(RefusedQuantize, TablesThatDoNotFit) {
  const Tensor table(DType::f32, {16}), few(DType::f32, {8}), halves(DType::f16, {16});
  std::fill_n(table.view().as<float>(), 16, 1.0f);
  const DequantizeArgs good{
      .x = i4, .scale = scale, .zero_point = {}, .out = x, .table = table.view()};
  const auto refuses_table = [&](const std::function<void(DequantizeArgs&)>& change,
                                 std::initializer_list<std::string_view> words) {
    return refused_with<DequantizeArgs>(good, &dequantize, change, words);
  };
  EXPECT_TRUE(refuses_table([&](auto& a) { a.table = few; },
                            {"dequantize: table is f32[8]", "must have 16"}));
  EXPECT_TRUE(refuses_table([&](auto& a) { a.table = halves; }, {"dequantize: table is f16[16]"}));
  EXPECT_TRUE(refuses_table([&](auto& a) { a.x = i8; },
                            {"dequantize: x is i8[4, 12] on cpu with a table", "for i4"}));
  EXPECT_TRUE(
      refuses_table([&](auto& a) { a.zero_point = zero; }, {"with a table and zero points"}));
  EXPECT_TRUE(refuses_table(
      [&](auto& a) { a.table = TensorView::contiguous(x.view().data, DType::f32, {16}); },
      {"dequantize: out", "shares memory with dequantize: table"}));
  table.view().as<float>()[7] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(refused([&] { dequantize(good); }, {"dequantize: table[7] is inf", "finite"}));
}

TEST_F(RefusedQuantize, ScalesOfNoKnownLayout) {
  const Tensor flat(DType::f32, {4}), five(DType::f32, {4, 5}), three(DType::f32, {3, 1});
  for (const Tensor* wrong : {&flat, &five, &three}) {
    EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.scale = *wrong; },
                        {"scale is " + to_string(*wrong), "4 rows of 12 columns", "[1, 12]",
                         "[4, 1]", "n dividing 12"}));
  }
  const Tensor wide(DType::f32, {4, 24});
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.scale = wide.view().slice(1, 0, 12); },
                      {"scale is f32[4, 12] strides [24, 1]", "contiguous"}));
}

TEST_F(RefusedQuantize, PairsOfNibblesWithDifferentScales) {
  const Tensor groups(DType::f32, {4, 4});
  EXPECT_TRUE(refuses(i4, {}, [&](auto& a) { a.scale = groups; }, {"i4 in groups of 3", "even"}));
}

TEST_F(RefusedQuantize, ShapesDevicesAndSharedMemory) {
  const Tensor short_x(DType::f16, {3, 12});
  EXPECT_TRUE(
      refuses(i8, {}, [&](auto& a) { a.x = short_x; }, {"f16[3, 12]", "i8[4, 12]", "one shape"}));
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.scale = on_gpu(scale); },
                      {"quantize: scale is on cuda:3", "x on cpu"}));
  EXPECT_TRUE(refuses(i8, {}, [&](auto& a) { a.out.data = x.view().data; },
                      {"shares memory with", "quantize: x"}));
}

TEST(RefusedReduce, WrongTensors) {
  const Tensor x(DType::f32, {4, 6}), out(DType::f32, {4}), three(DType::f32, {3});
  const Tensor index(DType::i64, {4}), empty(DType::f32, {4, 0}), ints(DType::i32, {4, 6});
  const ReduceArgs good{.x = x, .out = out};
  const auto refuses = [&](const std::function<void(ReduceArgs&)>& change,
                           std::initializer_list<std::string_view> words) {
    return refused_with<ReduceArgs>(good, &reduce, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.x = ints; }, {"reduce: x is i32[4, 6]", "f32, f16, bf16"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = three; }, {"reduce: out is f32[3]", "must have 4"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = index; }, {"reduce: out is i64[4]", "f32"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = on_gpu(out); }, {"reduce: out is on cuda:3"}));
  for (Reduction kind : {Reduction::mean, Reduction::max, Reduction::min}) {
    EXPECT_TRUE(refuses([&](auto& a) { a.x = empty, a.kind = kind; },
                        {"reduce: x is f32[4, 0]", "at least one column"}));
  }
  EXPECT_TRUE(supports(ReduceArgs{.x = empty, .out = out, .kind = Reduction::sum}));
  EXPECT_TRUE(supports(ReduceArgs{.x = empty, .out = out, .kind = Reduction::absmax}));
}

TEST(RefusedArgmax, WrongTensors) {
  const Tensor x(DType::f32, {4, 6}), out(DType::i32, {4}), floats(DType::f32, {4});
  const Tensor empty(DType::f32, {4, 0}), five(DType::i64, {5});
  const ArgmaxArgs good{.x = x, .out = out};
  const auto refuses = [&](const std::function<void(ArgmaxArgs&)>& change,
                           std::initializer_list<std::string_view> words) {
    return refused_with<ArgmaxArgs>(good, &argmax, change, words);
  };
  EXPECT_TRUE(refuses([&](auto& a) { a.x = empty; }, {"argmax: x is f32[4, 0]", "one column"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = floats; }, {"argmax: out is f32[4]", "i32, i64"}));
  EXPECT_TRUE(refuses([&](auto& a) { a.out = five; }, {"argmax: out is i64[5]", "must have 4"}));
}

}  // namespace
}  // namespace tessera::testing
