// MXFP4 on a GPU: the weights stay in 4 bits, byte for byte as on the CPU, and the device
// multiplies by them.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "tessera/core/convert.h"
#include "tessera/ops/gemm.h"
#include "tests/gpu.h"
#include "tests/model/formats/twins.h"

namespace tessera::testing {
namespace {

class TablesOnGpu : public GpuTest {};

bool has_bytes_of(const TensorView& there, const TensorView& here) {
  if (there.rank != here.rank || there.num_elements() != here.num_elements()) return false;
  const int64_t num_bytes = storage_bytes(here.dtype, here.num_elements());
  const Tensor copy(DType::u8, {num_bytes});
  copy_bytes(copy.view().data, cpu_device(), there.data, there.device,
             static_cast<size_t>(num_bytes));
  synchronize(there.device);
  return std::memcmp(copy.view().data, here.data, static_cast<size_t>(num_bytes)) == 0;
}

TEST_F(TablesOnGpu, AreLoadedAndMultipliedByAsOnTheCpu) {
  Twins twins;
  write_twins(twins, format_named("Mxfp4"));
  const auto here = load(twins.quantised, {.dtype = DType::bf16});
  const auto there = load(twins.quantised, {.dtype = DType::bf16, .device = cuda_device()});
  EXPECT_EQ(there->weights().kept()[0].as, "i4 of a table, groups of 32");
  for (const char* layer : {"self_attn.qkv", "self_attn.o_proj", "mlp.gate_up", "mlp.down_proj"}) {
    SCOPED_TRACE(layer);
    const std::string name = "model.layers.1." + std::string(layer) + ".weight";
    const model::LinearWeight &cpu = here->weights().find(name), &gpu = there->weights().find(name);
    ASSERT_EQ(gpu.table.rank, 1);
    EXPECT_TRUE(has_bytes_of(gpu.values, cpu.values));
    EXPECT_TRUE(has_bytes_of(gpu.scale, cpu.scale));
    EXPECT_TRUE(has_bytes_of(gpu.table, cpu.table));
    // The values are exact in bf16, so that the two differ by the order of sums alone: on either
    // side within k * 2^-22 of the sum of magnitudes, for which the values 6 * 2^-6 and a below 8
    // are bounds.
    const int64_t m = 5, n = cpu.values.size(0), k = cpu.values.size(1);
    const Tensor a(DType::bf16, {m, k}), want(DType::f32, {m, n});
    std::mt19937_64 random(9);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < m * k; ++i) {
      a.view().as<Bf16>()[i] = from_float<Bf16>(std::fmin(7.0f, std::fmax(-7.0f, normal(random))));
    }
    gemm({.a = a, .b = cpu.as_weight(), .out = want});
    const Tensor a_there = a.to(cuda_device()), out(DType::f32, {m, n}, cuda_device());
    gemm({.a = a_there, .b = gpu.as_weight(), .out = out}, {.batch_invariant = true});
    synchronize(cuda_device());
    const Tensor got = out.to(cpu_device());
    const double size = static_cast<double>(k);
    const double bound = 2 * size * 0x1p-22 * size * 8 * 6.0 / 64;
    for (int64_t i = 0; i < m * n; ++i) {
      ASSERT_NEAR(got.view().as<float>()[i], want.view().as<float>()[i], bound) << i;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
