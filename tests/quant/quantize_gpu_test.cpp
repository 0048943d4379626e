// Quantisation on a GPU: nearly the errors that the CPU makes, and the same bytes every time.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "quant/inverse_factor.h"
#include "tessera/ops/copy.h"
#include "tessera/quant/quantize_model.h"
#include "tests/gpu.h"
#include "tests/model/temporary_folder.h"
#include "tests/quant/small_model.h"

namespace tessera::testing {
namespace {

using quant::Method;

class QuantizeGpu : public GpuTest {};

const std::filesystem::path kModel = TESSERA_SOURCE_DIR "/models/tessera-13m";

quant::ModelQuantOptions options_for(Method method) {
  quant::ModelQuantOptions options;
  options.method = method;
  options.format = {
      .codes = method == Method::smoothquant ? quant::CodeFormat::int8 : quant::CodeFormat::int4,
      .group = 128};
  options.quantizes_inputs = method == Method::smoothquant;
  options.gptq = {.order = quant::ActOrder::weight, .search_clip = true};
  options.calibrates_kv = true;
  options.samples = random_samples(4, 256, 3);
  return options;
}

// In 16 bits inputs differ by rounding, so errors differ by a few percent.
TEST_F(QuantizeGpu, MakesTheErrorsOfTheCpu) {
  for (const Method method : {Method::gptq, Method::awq, Method::smoothquant}) {
    const TemporaryFolder to;
    quant::ModelQuantOptions options = options_for(method);
    const auto want = quant::quantize_model(kModel, to.path() / "cpu", options);
    options.device = cuda_device();
    const auto got = quant::quantize_model(kModel, to.path() / "gpu", options);
    ASSERT_EQ(got.layers.size(), want.layers.size());
    for (size_t i = 0; i < want.layers.size(); ++i) {
      const quant::LinearReport& a = got.layers[i];
      const quant::LinearReport& b = want.layers[i];
      EXPECT_NEAR(a.weight_error, b.weight_error, 0.1 * b.weight_error) << a.name;
      EXPECT_NEAR(a.output_error, b.output_error, 0.1 * b.output_error) << a.name;
    }
  }
}

TEST_F(QuantizeGpu, WritesTheSameBytesEveryTime) {
  const TemporaryFolder to;
  quant::ModelQuantOptions options = options_for(Method::gptq);
  options.device = cuda_device();
  quant::quantize_model(kModel, to.path() / "a", options);
  quant::quantize_model(kModel, to.path() / "b", options);
  EXPECT_TRUE(files_of(to.path() / "a") == files_of(to.path() / "b"));
}

TEST_F(QuantizeGpu, TheFactorIsThatOfTheCpu) {
  const int64_t k = 1024;
  const quant::InputStats stats = stats_of(correlated_inputs(2 * k, k, 33));
  const Tensor h(DType::f32, {k, k}), want(DType::f32, {k, k});
  for (int64_t i = 0; i < k * k; ++i) {
    h.view().as<float>()[i] =
        stats.products().as<float>()[i] / static_cast<float>(k) + (i % (k + 1) == 0 ? 1.0f : 0.0f);
  }
  const Tensor on_gpu = h.to(cuda_device()), factor(DType::f32, {k, k}, cuda_device());
  ASSERT_TRUE(quant::factor_inverse_by_blocks(h, want, {}));
  ASSERT_TRUE(quant::factor_inverse_by_blocks(on_gpu, factor, {}));
  const Tensor got = factor.to(cpu_device());
  for (int64_t i = 0; i < k * k; ++i) {
    ASSERT_NEAR(got.view().as<float>()[i], want.view().as<float>()[i], 2e-4) << i;
  }
}

// Inputs that wait for each other give the sums of the CPU.
TEST_F(QuantizeGpu, SumsOfInputsAreThoseOfTheCpu) {
  const int64_t rows = 300, k = 192;
  const Tensor x = correlated_inputs(rows, k, 35);
  const Tensor typed(DType::bf16, {rows, k});
  copy({.x = x, .out = typed});
  copy({.x = typed, .out = x});
  const quant::InputStats want = stats_of(x);
  const Tensor on_gpu = typed.to(cuda_device());
  for (const auto sums : {quant::InputSums::products, quant::InputSums::all}) {
    quant::InputStats got(k, sums, cuda_device(), 200);
    got.add(on_gpu.view().slice(0, 0, 120));
    got.add(on_gpu.view().slice(0, 120, rows));
    got.finish();
    const Tensor plain(DType::f32, {k, k}, got.products().device);
    copy({.x = got.products(), .out = plain});
    const Tensor host = plain.to(cpu_device());
    for (int64_t i = 0; i < k * k; ++i) {
      const double scale = std::sqrt(want.products().as<float>()[i / k * (k + 1)] *
                                     want.products().as<float>()[i % k * (k + 1)]);
      ASSERT_NEAR(host.view().as<float>()[i], want.products().as<float>()[i], 1e-4 * scale) << i;
    }
    if (sums == quant::InputSums::all) {
      EXPECT_EQ(got.max_abs(), want.max_abs());
    }
  }
}

}  // namespace
}  // namespace tessera::testing
