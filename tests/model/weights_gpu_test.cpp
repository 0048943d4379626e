// Weights loaded to a GPU have the bits that the CPU loads: for every type in the file and in the
// model, fused, interleaved and shared among ranks.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>

#include "model/model.h"
#include "tessera/core/memory_use.h"
#include "tests/core/message_of.h"
#include "tests/gpu.h"
#include "tests/model/tiny_model.h"

namespace tessera::testing {
namespace {

using model::Checkpoint;
using model::LoadOptions;
using model::Model;
using model::ModelConfig;

// Large enough for several blocks a tensor; every bias, and a head of its own.
ModelConfig config_of() {
  ModelConfig config = tiny_config();
  config.hidden = 256;
  config.inter = 768;
  config.vocab = 3000;
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  return config;
}

// Values of all sizes, which narrower types must round: subnormals of f16 and values beyond it too.
std::vector<FileTensor> random_tensors(const ModelConfig& config, DType dtype) {
  std::vector<FileTensor> tensors = tiny_tensors(config, dtype);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-30, 18);
  for (FileTensor& tensor : tensors) {
    for (float& value : tensor.values) value = std::ldexp(normal(random), exponent(random));
  }
  return tensors;
}

// Gate and up are interleaved in groups of 8 rows where a device has a product that applies the
// gate; this is the order without it.
std::vector<std::byte> without_interleaving(const std::byte* data, int64_t num_rows,
                                            int64_t row_bytes) {
  std::vector<std::byte> rows(static_cast<size_t>(num_rows * row_bytes));
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t to = row / 16 * 8 + row % 8 + (row % 16 < 8 ? 0 : num_rows / 2);
    std::memcpy(rows.data() + to * row_bytes, data + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
  return rows;
}

void expect_equal(const Model& on_gpu, const Model& on_cpu) {
  ASSERT_EQ(on_gpu.weights().by_name().size(), on_cpu.weights().by_name().size());
  for (const auto& [name, weight] : on_gpu.weights().by_name()) {
    const TensorView& got = weight.values;
    const TensorView& want = on_cpu.weights().find(name).values;
    ASSERT_TRUE(got.same_shape(want)) << name;
    ASSERT_EQ(got.dtype, want.dtype) << name;
    ASSERT_EQ(got.device, cuda_device()) << name;
    const auto num_bytes = static_cast<size_t>(storage_bytes(got.dtype, got.num_elements()));
    std::vector<std::byte> back(num_bytes);
    copy_bytes(back.data(), cpu_device(), got.data, got.device, num_bytes);
    synchronize(got.device);
    bool is_equal = std::memcmp(back.data(), want.data, num_bytes) == 0;
    if (!is_equal && name.find(".gate_up.") != std::string::npos) {
      is_equal = back == without_interleaving(want.as<std::byte>(), got.size(0),
                                              static_cast<int64_t>(num_bytes) / got.size(0));
    }
    ASSERT_TRUE(is_equal) << name << " " << to_string(got);
  }
}

class WeightsOnGpu : public GpuTest {
 protected:
  Checkpoint store(const std::vector<FileTensor>& tensors, size_t padding = 0) {
    folder_.write("model.safetensors", stored_tensors(tensors, padding));
    return Checkpoint::open(folder_.path());
  }
  TemporaryFolder folder_;
};

TEST_F(WeightsOnGpu, HaveTheBitsOfTheCpuFromEveryTypeToEveryType) {
  const ModelConfig config = config_of();
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    for (const size_t padding : {0, 1}) {
      const Checkpoint checkpoint = store(random_tensors(config, stored), padding);
      for (const DType wanted : {DType::f32, DType::f16, DType::bf16}) {
        SCOPED_TRACE(std::string(name(stored)) + " to " + std::string(name(wanted)));
        const auto on_cpu = load_model(checkpoint, config, {.dtype = wanted});
        const auto on_gpu =
            load_model(checkpoint, config, {.dtype = wanted, .device = cuda_device()});
        EXPECT_EQ(on_gpu->weight_bytes(), on_cpu->weight_bytes());
        EXPECT_EQ(on_gpu->weights().upload_times().num_bytes,
                  config.num_parameters() * bit_width(stored) / 8);
        expect_equal(*on_gpu, *on_cpu);
      }
    }
  }
}

TEST_F(WeightsOnGpu, AreTheSameThroughSmallBuffers) {
  const ModelConfig config = config_of();
  const Checkpoint checkpoint = store(random_tensors(config, DType::f32));
  const auto on_cpu = load_model(checkpoint, config, {.dtype = DType::bf16});
  for (const int64_t buffer_bytes : {8 * 256 * 4, 8 * 256 * 4 + 2048, 100'000}) {
    const auto on_gpu = load_model(checkpoint, config,
                                   {.dtype = DType::bf16,
                                    .device = cuda_device(),
                                    .carrier = std::shared_ptr<model::Carrier>(
                                        model::make_carrier(cuda_device(), buffer_bytes))});
    expect_equal(*on_gpu, *on_cpu);
  }
}

TEST_F(WeightsOnGpu, AreCutIntoRanksAsOnTheCpu) {
  const ModelConfig config = config_of();
  for (const DType stored : {DType::f32, DType::bf16}) {
    const Checkpoint checkpoint = store(random_tensors(config, stored));
    for (const int rank : {0, 1}) {
      LoadOptions options{.dtype = DType::bf16, .rank = rank, .num_ranks = 2};
      const auto on_cpu = load_model(checkpoint, config, options);
      options.device = cuda_device();
      expect_equal(*load_model(checkpoint, config, options), *on_cpu);
    }
  }
}

TEST_F(WeightsOnGpu, AreTheSameWhenTheyAreCheckedOrMadeUp) {
  const ModelConfig config = config_of();
  const Checkpoint checkpoint = store(tiny_tensors(config));
  LoadOptions options{.dtype = DType::f16, .check_values = true};
  const auto checked = load_model(checkpoint, config, options);
  const auto random = make_random_model(config, options, 5);
  options.device = cuda_device();
  expect_equal(*load_model(checkpoint, config, options), *checked);
  expect_equal(*make_random_model(config, options, 5), *random);
}

TEST_F(WeightsOnGpu, RefusesValuesThatAreNotFiniteByName) {
  const ModelConfig config = config_of();
  std::vector<FileTensor> tensors = tiny_tensors(config);
  for (FileTensor& tensor : tensors) {
    if (tensor.name == "model.layers.1.mlp.up_proj.weight") {
      tensor.values[3 * 256 + 5] = std::numeric_limits<float>::infinity();
    }
  }
  const Checkpoint checkpoint = store(tensors);
  const std::string message = message_of(
      [&] { load_model(checkpoint, config, {.device = cuda_device(), .check_values = true}); });
  EXPECT_NE(message.find("'model.layers.1.mlp.up_proj.weight' holds inf at [3, 5]"),
            std::string::npos)
      << message;
}

TEST_F(WeightsOnGpu, NamesAFileThatShrinksWhileItIsLoaded) {
  const ModelConfig config = config_of();
  const std::filesystem::path path = folder_.path() / "model.safetensors";
  const Checkpoint checkpoint = store(tiny_tensors(config));
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  const std::string message = message_of([&] {
    load_model(checkpoint, config,
               {.device = cuda_device(),
                .on_progress =
                    [&](int64_t done, int64_t) {
                      if (done > 0) {
                        std::filesystem::resize_file(path, static_cast<uintmax_t>(size / 2));
                      }
                    },
                .carrier = std::shared_ptr<model::Carrier>(
                    model::make_carrier(cuda_device(), 16 * 1024))});
  });
  EXPECT_NE(message.find(path.string() + ": ends at byte "), std::string::npos) << message;
  EXPECT_NE(message.find(" and had " + std::to_string(size)), std::string::npos) << message;
}

TEST_F(WeightsOnGpu, TakeOneAllocationAndGiveItBack) {
  const ModelConfig config = config_of();
  const Checkpoint checkpoint = store(tiny_tensors(config, DType::bf16));
  const AllocatedBytes before = allocated_bytes(cuda_device());
  {
    const auto loaded = load_model(checkpoint, config, {.device = cuda_device()});
    const int64_t held = allocated_bytes(cuda_device()).now - before.now;
    EXPECT_GE(held, loaded->weight_bytes());
    // Rounded up to 256 bytes for each of some thirty tensors; nothing of the upload is left.
    EXPECT_LE(held, loaded->weight_bytes() + 256 * 40);
  }
  EXPECT_EQ(allocated_bytes(cuda_device()).now, before.now);
}

}  // namespace
}  // namespace tessera::testing
