// How well a model predicts tokens, with dequantised weights and inputs rounded to codes.
// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/parallel.h"
#include "core/read_file.h"
#include "core/text.h"
#include "model/model.h"
#include "quant_model/output_config.h"
#include "quant_model/stored_weight.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"
#include "tessera/quant/quantize_model.h"

namespace tessera::quant {
namespace {

constexpr int64_t kPageSize = 16;

// Values of a folder that quantize_model wrote: codes are dequantised, the rest is read as it is.
class DecodedSource final : public model::WeightSource {
 public:
  DecodedSource(const model::Checkpoint& checkpoint, const StoredForm& form)
      : checkpoint_(checkpoint), form_(form) {}

  DType dtype_of(const model::TensorSpec&) const override { return DType::f32; }
  DType native_dtype(const model::TensorSpec&, DType) const override { return DType::f32; }
  void read(const model::TensorSpec& spec, int64_t row, int64_t col,
            const TensorView& to) const override {
    expects(to.dtype == DType::f32, "DecodedSource: values are read as f32");
    const std::lock_guard lock(mutex_);
    if (name_ != spec.name) {
      values_ = decode(spec);
      name_ = spec.name;
    }
    for (int64_t i = 0; i < to.size(0); ++i) {
      std::copy_n(values_.view().as<float>() + (row + i) * spec.num_cols + col, to.size(1),
                  to.as<float>() + i * to.size(1));
    }
  }

 private:
  Tensor decode(const model::TensorSpec& spec) const {
    const model::StoredTensor* stored = checkpoint_.find(spec.name);
    if (stored == nullptr || (stored->dtype && !is_float16_or_32(*stored->dtype))) {
      return read_stored(checkpoint_, spec.name.substr(0, spec.name.rfind('.')), form_);
    }
    const int64_t count = spec.num_rows * spec.num_cols;
    if (stored->num_bytes != storage_bytes(model::loadable_dtype(*stored), count)) {
      fail(concat("checkpoint: tensor '", spec.name, "' has another size than config.json says"));
    }
    std::vector<std::byte> bytes(static_cast<size_t>(stored->num_bytes));
    stored->file->read(stored->begin, bytes);
    Tensor values(DType::f32, {spec.num_rows, spec.num_cols});
    convert(TensorView::contiguous(bytes.data(), *stored->dtype, {count}),
            TensorView::contiguous(values.view().data, DType::f32, {count}));
    return values;
  }

  const model::Checkpoint& checkpoint_;
  StoredForm form_;
  mutable std::mutex mutex_;  // of what follows: the tensor that is being read
  mutable std::string name_;
  mutable Tensor values_;
};

// Rounds the inputs of some weights to codes with a scale for each token, or for 128 inputs of it.
class CodedInputs final : public ProductInputs {
 public:
  explicit CodedInputs(const QuantFormat& format) : format_(format) {}
  void watch(const void* weight) { weights_.insert(weight); }
  TensorView see(const TensorView& a, const TensorView& b) override {
    if (!weights_.contains(b.data)) return a;
    const int64_t rows = a.size(0), k = a.size(1);
    const bool has_groups = format_.codes == CodeFormat::fp8_block && k % kBlockSide == 0;
    const Tensor codes(format_.code_dtype(), {rows, k});
    const Tensor scale(DType::f32, {rows, has_groups ? k / kBlockSide : 1});
    quantize({.x = a, .out = codes, .scale = scale.view()});
    rounded_ = Tensor(a.dtype, {rows, k});
    tessera::dequantize({.x = codes, .scale = scale.view(), .out = rounded_});
    return rounded_;
  }

 private:
  QuantFormat format_;
  std::set<const void*> weights_;
  Tensor rounded_;  // of the last call
};

// config.json without what load_model does not need here: weights are dequantised.
model::ModelConfig plain_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  auto json = nlohmann::ordered_json::parse(read_file(path, 1 << 20));
  json.erase("quantization_config");
  return model::parse_config(json.dump(), shown_path(path.native()));
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
  const model::ModelConfig config = plain_config(folder);
  size_t longest = 0;
  for (const auto& window : windows) longest = std::max(longest, window.size());
  if (longest < 2) fail("measure_likelihood: no window has two tokens");
  const model::Checkpoint checkpoint = model::Checkpoint::open(folder);
  const model::StoredTensor* embedding = checkpoint.find("model.embed_tokens.weight");
  if (embedding == nullptr) fail("checkpoint: tensor 'model.embed_tokens.weight' is missing");
  const FolderForm form = read_form(folder, model::loadable_dtype(*embedding));
  const model::LoadOptions load{.dtype = DType::f32};
  const auto dry = model::make_dry_model(config, load);
  const DecodedSource source(checkpoint, form.form);
  const auto model = model::make_model(config, model::Weights(load, source, dry->weights()));
  CodedInputs coded(form.form.format);
  if (form.quantizes_inputs) {
    for (const auto& [name, weight] : model->weights().by_name()) {
      if (name.starts_with("model.layers.")) coded.watch(weight.values.data);
    }
  }
  const auto tokens = static_cast<int64_t>(longest);
  const model::BatchLimits limits{.tokens = tokens,
                                  .batch = 1,
                                  .max_pages = (tokens + kPageSize - 1) / kPageSize,
                                  .logits = tokens,
                                  .max_positions = tokens};
  dist::LocalCommunicator communicator;
  model->prepare(limits, communicator);
  model::KvMemory kv(config, config.num_kv_heads,
                     {.num_pages = limits.max_pages, .page_size = kPageSize, .dtype = DType::f32},
                     cpu_device());
  model::BatchBuffers buffers(limits, cpu_device());
  const Context ctx{.batch_invariant = true,
                    .product_inputs = form.quantizes_inputs ? &coded : nullptr};
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
