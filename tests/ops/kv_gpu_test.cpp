// KV cache operations on a GPU as a caller sees them: what a GPU skips where the CPU refuses, and
// keys rotated on the way as rope would rotate them.
// SPDX-License-Identifier: MIT
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tessera/core/convert.h"
#include "tessera/ops/kv_cache.h"
#include "tests/gpu.h"

namespace tessera::testing {
namespace {

Tensor random_tensor(DType dtype, std::initializer_list<int64_t> shape, unsigned seed) {
  Tensor values(DType::f32, shape), out(dtype, shape);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < values.view().num_elements(); ++i) {
    values.view().as<float>()[i] = normal(random);
  }
  convert(values, out);
  return out;
}

template <class T>
Tensor tensor_of(DType dtype, const std::vector<T>& values) {
  Tensor out(dtype, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.view().as<T>());
  return out.to(cuda_device());
}

// The bytes of a tensor in GPU memory.
std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(cpu_device());
  return {host.view().as<char>(), static_cast<size_t>(host.size_bytes())};
}

Tensor pages_of_ones(DType dtype, std::initializer_list<int64_t> shape) {
  const Tensor pages(dtype, shape);
  std::memset(pages.view().data, 1, static_cast<size_t>(pages.size_bytes()));
  return pages.to(cuda_device());
}

class KvOnGpu : public GpuTest {};

TEST_F(KvOnGpu, ASlotOutsideThePagesIsSkipped) {
  for (const DType dtype : {DType::bf16, DType::i8}) {
    const bool has_scales = dtype == DType::i8;
    const Tensor k = random_tensor(DType::bf16, {5, 2, 64}, 1).to(cuda_device());
    const Tensor k_pages = pages_of_ones(dtype, {4, 8, 2, 64});
    const Tensor v_pages = pages_of_ones(dtype, {4, 8, 2, 64});
    const Tensor k_scales = pages_of_ones(DType::f16, {4, 8, 2, 1});
    const Tensor v_scales = pages_of_ones(DType::f16, {4, 8, 2, 1});
    const std::string before = bytes_of(k_pages);
    KvAppendArgs args{.k = k, .v = k, .slots = {}, .k_pages = k_pages, .v_pages = v_pages};
    if (has_scales) args.k_scales = k_scales, args.v_scales = v_scales;
    const Tensor outside =
        tensor_of<int64_t>(DType::i64, {-1, 32, int64_t{1} << 40, INT64_MIN, 33});
    args.slots = outside;
    kv_append(args);
    synchronize(cuda_device());
    EXPECT_EQ(bytes_of(k_pages), before);
    EXPECT_EQ(bytes_of(v_pages), before);
    const Tensor inside = tensor_of<int64_t>(DType::i64, {-1, 32, 31, INT64_MIN, 33});
    args.slots = inside;
    kv_append(args);
    synchronize(cuda_device());
    const size_t token_bytes = before.size() / 32;
    EXPECT_EQ(bytes_of(k_pages).substr(0, 31 * token_bytes), before.substr(0, 31 * token_bytes));
    EXPECT_NE(bytes_of(k_pages).substr(31 * token_bytes), before.substr(31 * token_bytes));
  }
}

TEST_F(KvOnGpu, ATailSlotOutsideTheTailsIsSkipped) {
  const Tensor k = random_tensor(DType::f16, {32, 1, 16}, 1).to(cuda_device());
  const Tensor k_pages = pages_of_ones(DType::i4, {2, 32, 1, 16});
  const Tensor v_pages = pages_of_ones(DType::f16, {2, 32, 1, 16});
  const Tensor k_scales = pages_of_ones(DType::f16, {2, 1, 1, 16, 2});
  const Tensor k_tail = pages_of_ones(DType::f16, {1, 32, 1, 16});
  std::vector<int32_t> slots(32), tail_slots(32);
  for (int i = 0; i < 32; ++i) slots[static_cast<size_t>(i)] = i;
  for (int i = 0; i < 32; ++i) tail_slots[static_cast<size_t>(i)] = i % 2 == 0 ? 32 + i : -1;
  const Tensor at = tensor_of(DType::i32, slots), tail_at = tensor_of(DType::i32, tail_slots);
  const std::string pages = bytes_of(k_pages), tail = bytes_of(k_tail);
  kv_append({.k = k,
             .v = k,
             .slots = at,
             .k_pages = k_pages,
             .v_pages = v_pages,
             .k_scales = k_scales,
             .k_tail = k_tail,
             .tail_slots = tail_at});
  synchronize(cuda_device());
  EXPECT_EQ(bytes_of(k_pages), pages);
  EXPECT_EQ(bytes_of(k_tail), tail);
}

TEST_F(KvOnGpu, PagesOutsideThePoolAreSkipped) {
  const Tensor k_pages = random_tensor(DType::f16, {4, 8, 2, 64}, 1).to(cuda_device());
  const Tensor v_pages = random_tensor(DType::f16, {4, 8, 2, 64}, 2).to(cuda_device());
  const std::string before = bytes_of(k_pages);
  const Tensor sources = tensor_of<int32_t>(DType::i32, {0, -1, 4, 1, 2});
  const Tensor targets = tensor_of<int32_t>(DType::i32, {4, 3, 3, -1, 3});
  kv_copy_pages({.k_pages = k_pages, .v_pages = v_pages, .sources = sources, .targets = targets});
  synchronize(cuda_device());
  const size_t page = before.size() / 4;
  EXPECT_EQ(bytes_of(k_pages), before.substr(0, 3 * page) + before.substr(2 * page, page));

  const Tensor lens = tensor_of<int32_t>(DType::i32, {8, 100, -3});
  const Tensor starts = tensor_of<int32_t>(DType::i32, {0, 2000, 0});
  Tensor table(DType::i32, {3, 1});
  for (int i = 0; i < 3; ++i) table.view().as<int32_t>()[i] = i == 0 ? 77 : 1;
  const Tensor table_there = table.to(cuda_device());
  const Tensor k = pages_of_ones(DType::f16, {16, 2, 64}),
               v = pages_of_ones(DType::f16, {16, 2, 64});
  const std::string untouched = bytes_of(k);
  kv_gather(
      {.kv = {.k_pages = k_pages, .v_pages = v_pages, .page_table = table_there, .seq_lens = lens},
       .starts = starts,
       .k = k,
       .v = v});
  synchronize(cuda_device());
  EXPECT_EQ(bytes_of(k), untouched);
  EXPECT_EQ(bytes_of(v), untouched);
}

TEST_F(KvOnGpu, RotatingOnTheWayGivesWhatRotatingFirstGives) {
  for (const RopeStyle style : {RopeStyle::half_split, RopeStyle::interleaved}) {
    for (const int64_t d : {int64_t{128}, int64_t{36}}) {
      const auto tensors = [&](unsigned seed) {
        return random_tensor(DType::bf16, {40, 4, d}, seed).to(cuda_device());
      };
      const Tensor q = tensors(1), k = tensors(2), fused_q = tensors(1), fused_k = tensors(2);
      const Tensor v = tensors(3);
      const Tensor table = make_rope_table(64, d, 10000.0).to(cuda_device());
      std::vector<int32_t> numbers(40);
      for (int i = 0; i < 40; ++i) numbers[static_cast<size_t>(i)] = (i * 7) % 64;
      const Tensor at = tensor_of(DType::i32, numbers);
      const Tensor pages = pages_of_ones(DType::e4m3, {4, 16, 4, d});
      const Tensor fused_pages = pages_of_ones(DType::e4m3, {4, 16, 4, d});
      const Tensor v_pages = pages_of_ones(DType::e4m3, {4, 16, 4, d});
      rope({.q = q, .k = k.view(), .positions = at, .table = table, .style = style});
      kv_append({.k = k, .v = v, .slots = at, .k_pages = pages, .v_pages = v_pages});
      kv_append({.k = fused_k,
                 .v = v,
                 .slots = at,
                 .k_pages = fused_pages,
                 .v_pages = v_pages,
                 .rope = KvRope{.q = fused_q, .positions = at, .table = table, .style = style}});
      synchronize(cuda_device());
      EXPECT_EQ(bytes_of(fused_q), bytes_of(q));
      EXPECT_EQ(bytes_of(fused_k), bytes_of(k));
      EXPECT_EQ(bytes_of(fused_pages), bytes_of(pages));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
