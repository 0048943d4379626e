// How well a model predicts tokens, with dequantised weights and inputs rounded to codes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "core/parallel.h"
#include "core/text.h"
#include "model/formats/kv_scales.h"
#include "model/formats/stored_format.h"
#include "model/model.h"
#include "quant_model/layer.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {
namespace {

constexpr int64_t kEvaluationPageSize = 16;

// Rounds the inputs of some weights to codes, with a scale for each token, for 128 inputs of it, or
// one that is given.
class CodedInputs final : public ProductInputs {
 public:
  CodedInputs(DType codes, bool has_groups) : codes_(codes), has_groups_(has_groups) {}
  void watch(const void* weight, std::optional<float> scale) { scales_[weight] = scale; }
  TensorView see(const TensorView& a, const TensorView& b) override {
    const auto found = scales_.find(b.data);
    if (found == scales_.end()) return a;
    const int64_t rows = a.size(0), k = a.size(1);
    const bool has_groups = has_groups_ && k % kBlockSide == 0;
    const Tensor codes(codes_, {rows, k});
    QuantizeArgs args{.x = a, .out = codes, .scale = {}};
    Tensor scale;
    if (found->second) {
      scale = Tensor(DType::f32, {1});
      *scale.view().as<float>() = *found->second;
      args.mode = ScaleMode::fixed;
    } else {
      scale = Tensor(DType::f32, {rows, has_groups ? k / kBlockSide : 1});
    }
    args.scale = scale;
    quantize(args);
    rounded_ = Tensor(a.dtype, {rows, k});
    tessera::dequantize({.x = codes, .scale = scale.view(), .out = rounded_});
    return rounded_;
  }

 private:
  DType codes_;
  bool has_groups_;
  std::map<const void*, std::optional<float>> scales_;
  Tensor rounded_;  // of the last call
};

// What rounds the inputs of a model whose config asks for it; null: nothing.
std::unique_ptr<CodedInputs> coded_inputs(const model::Model& model,
                                          const model::Checkpoint& checkpoint) {
  const auto& formats = model.config().formats;
  if (formats == nullptr) return nullptr;
  std::unique_ptr<CodedInputs> coded;
  for (int64_t layer = 0; layer < model.config().num_layers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, ".");
    for (const Linear& linear : find_linears(model.config())) {
      const std::string first = prefix + linear.tensors.front();
      const std::string module = first.substr(0, first.rfind('.'));
      const model::StoredFormat& format = formats->of(module);
      if (!format.takes_codes) continue;
      if (coded == nullptr) {
        coded = std::make_unique<CodedInputs>(format.codes, format.rows_per_scale > 1);
      }
      coded->watch(model.weights().find(concat(prefix, linear.name, ".weight")).values.data,
                   model::read_number(checkpoint, module + ".input_scale"));
    }
  }
  return coded;
}

double log_probability(const float* logits, int64_t vocab, int32_t token) {
  float highest = logits[0];
  for (int64_t i = 1; i < vocab; ++i) highest = std::max(highest, logits[i]);
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]} - highest);
  return double{logits[token]} - highest - std::log(sum);
}

}  // namespace

Likelihood measure_likelihood(const std::filesystem::path& folder,
                              const std::vector<std::vector<int32_t>>& windows,
                              const std::function<void(int64_t, double)>& on_window) {
  const model::ModelConfig config = model::load_config(folder);
  size_t longest = 0;
  for (const auto& window : windows) longest = std::max(longest, window.size());
  if (longest < 2) fail("measure_likelihood: no window has two tokens");
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder);
  const auto model = model::load_model(checkpoint, config,
                                       {.dtype = DType::f32, .format = model::WeightFormat::plain});
  const std::unique_ptr<CodedInputs> coded = coded_inputs(*model, checkpoint);
  const auto tokens = static_cast<int64_t>(longest);
  const model::BatchLimits limits{
      .tokens = tokens,
      .batch = 1,
      .max_pages = (tokens + kEvaluationPageSize - 1) / kEvaluationPageSize,
      .logits = tokens,
      .max_positions = tokens};
  dist::LocalCommunicator communicator;
  model->prepare(limits, communicator);
  model::KvMemory kv(
      config, config.num_kv_heads,
      {.num_pages = limits.max_pages, .page_size = kEvaluationPageSize, .dtype = DType::f32},
      cpu_device());
  model::BatchBuffers buffers(limits, cpu_device());
  const Context ctx{.batch_invariant = true, .product_inputs = coded.get()};
  Likelihood result;
  double sum = 0;
  for (const std::vector<int32_t>& window : windows) {
    const auto count = static_cast<int32_t>(window.size());
    model::HostBatch host;
    host.tokens = window;
    host.positions.resize(window.size());
    std::iota(host.positions.begin(), host.positions.end(), 0);
    host.slots = host.positions;
    host.max_pages = limits.max_pages;
    host.page_table.resize(static_cast<size_t>(limits.max_pages));
    std::iota(host.page_table.begin(), host.page_table.end(), 0);
    host.seq_lens = {count};
    host.query_starts = {0, count};
    host.logit_rows.assign(host.positions.begin(), host.positions.end() - 1);
    const TensorView logits = model->forward(buffers.upload(host, ctx), kv, ctx);
    std::vector<double> terms(window.size() - 1);
    parallel_for(count - 1, config.vocab * 8, [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      terms[at] =
          log_probability(logits.as<float>() + i * config.vocab, config.vocab, window[at + 1]);
    });
    for (const double term : terms) sum -= term;
    result.num_tokens += count - 1;
    result.nll = sum / static_cast<double>(result.num_tokens);
    if (on_window) on_window(result.num_tokens, result.nll);
  }
  return result;
}

}  // namespace tessera::quant
