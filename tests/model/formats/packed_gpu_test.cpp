// 4-bit weights that the loader packs on a GPU: 16-bit scales keep the checkpoint's type, and the
// unpacked weight is the one that the CPU loads.
// SPDX-License-Identifier: MIT
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tessera/ops/gemm.h"
#include "tests/gpu.h"
#include "tests/model/formats/twins.h"

namespace tessera::testing {
namespace {

constexpr const char* kLayers[] = {"self_attn.qkv", "self_attn.o_proj", "mlp.gate_up",
                                   "mlp.down_proj"};

class PackedOnGpu : public GpuTest {
 protected:
  static bool same_bytes(const Tensor& there, const TensorView& here) {
    const Tensor copy = there.to(cpu_device());
    return copy.size_bytes() == storage_bytes(here.dtype, here.num_elements()) &&
           std::memcmp(copy.view().data, here.data, static_cast<size_t>(copy.size_bytes())) == 0;
  }

  // Unpacks each layer of `there` and expects the codes, scales and zero points of `here`.
  static void expect_weights_of(const model::Model& there, const model::Model& here) {
    for (const char* layer : kLayers) {
      SCOPED_TRACE(layer);
      const std::string name = "model.layers.1." + std::string(layer) + ".weight";
      const model::LinearWeight &gpu = there.weights().find(name), &cpu = here.weights().find(name);
      ASSERT_EQ(gpu.packing, Packing::fragments);
      const Device device = cuda_device();
      const int64_t groups = gpu.scale.size(1);
      const Tensor values(DType::i4, {gpu.values.size(0), gpu.values.size(1)}, device);
      const Tensor scale(DType::f32, {gpu.scale.size(0), groups}, device);
      const Tensor zero(DType::u8, {gpu.scale.size(0), groups}, device);
      Weight rows{.values = values, .scale = scale, .group = gpu.group};
      if (gpu.zero_point.rank > 0) rows.zero_point = zero;
      pack_weight({.weight = gpu.as_weight(), .out = rows});
      synchronize(device);
      EXPECT_TRUE(same_bytes(values, cpu.values));
      EXPECT_TRUE(same_bytes(scale, cpu.scale));
      ASSERT_EQ(gpu.zero_point.rank, cpu.zero_point.rank);
      EXPECT_TRUE(cpu.zero_point.rank == 0 || same_bytes(zero, cpu.zero_point));
    }
  }

  static DType scale_of(const model::Model& loaded, const char* layer) {
    return loaded.weights().find("model.layers.1." + std::string(layer) + ".weight").scale.dtype;
  }

  static bool is_packed(const model::Model& loaded) {
    return loaded.weights().kept().front().as.find("packed") != std::string::npos;
  }
};

TEST_F(PackedOnGpu, ScalesKeepTheTypeOfTheCheckpoint) {
  for (const char* format : {"GptqSymmetric", "Awq", "W4A16"}) {
    SCOPED_TRACE(format);
    Twins twins;
    write_twins(twins, format_named(format));
    const auto here = load(twins.quantised, {.dtype = DType::bf16});
    const auto there = load(twins.quantised, {.dtype = DType::bf16, .device = cuda_device()});
    if (!is_packed(*there)) GTEST_SKIP() << "no row of this device takes packed 4-bit weights";
    for (const char* layer : kLayers) EXPECT_EQ(scale_of(*there, layer), DType::f16) << layer;
    EXPECT_LT(there->weight_bytes(), here->weight_bytes());
    expect_weights_of(*there, *here);
  }
}

TEST_F(PackedOnGpu, ScalesOfPartsThatDifferBecomeFloats) {
  Twins twins;
  write_twins(twins, format_named("W4A16"), "", [](std::vector<RawTensor>& tensors) {
    tensor_of(tensors, "model.layers.1.self_attn.k_proj.weight_scale").type = "BF16";
  });
  const auto here = load(twins.quantised, {.dtype = DType::bf16});
  const auto there = load(twins.quantised, {.dtype = DType::bf16, .device = cuda_device()});
  if (!is_packed(*there)) GTEST_SKIP() << "no row of this device takes packed 4-bit weights";
  EXPECT_EQ(scale_of(*there, "self_attn.qkv"), DType::f32);
  EXPECT_EQ(scale_of(*there, "mlp.gate_up"), DType::f16);
  expect_weights_of(*there, *here);
}

TEST_F(PackedOnGpu, WeightsQuantisedWhileTheyAreLoadedHaveScalesOfBf16) {
  Twins twins;
  write_twins(twins, format_named("W4A16"));
  const model::LoadOptions options{
      .dtype = DType::bf16, .format = model::WeightFormat::int4, .weight_group = 64};
  model::LoadOptions on_gpu = options;
  on_gpu.device = cuda_device();
  const auto here = load(twins.dense, options), there = load(twins.dense, on_gpu);
  if (!is_packed(*there)) GTEST_SKIP() << "no row of this device takes packed 4-bit weights";
  for (const char* layer : kLayers) EXPECT_EQ(scale_of(*there, layer), DType::bf16) << layer;
  expect_weights_of(*there, *here);
}

}  // namespace
}  // namespace tessera::testing
