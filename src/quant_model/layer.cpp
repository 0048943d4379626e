// Tensors of a layer, and runs of it.
// SPDX-License-Identifier: MIT
#include "quant_model/layer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/parallel.h"
#include "core/text.h"
#include "dist/communicator.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/copy.h"

namespace tessera::quant {
namespace {

constexpr std::string_view kFirst = "model.layers.0.";
constexpr int64_t kPageSize = 16;

// A model of one layer, without a vocabulary to speak of.
model::ModelConfig one_layer(const model::ModelConfig& config, int64_t layer) {
  model::ModelConfig one = config;
  one.num_layers = 1;
  one.vocab = 8;
  one.has_tied_embeddings = true;
  one.window = config.window_of(layer);
  one.windowed_layers.clear();
  return one;
}

// Serves the tensors of a layer as those of layer 0, and zeros for all else.
class LayerSource final : public model::WeightSource {
 public:
  explicit LayerSource(const LayerTensors& tensors) : tensors_(tensors) {}

  DType dtype_of(const model::TensorSpec&) const override { return DType::f32; }
  DType native_dtype(const model::TensorSpec&, DType) const override { return DType::f32; }
  void read(const model::TensorSpec& spec, int64_t row, int64_t col,
            const TensorView& to) const override {
    auto* out = to.as<float>();
    expects(to.dtype == DType::f32, "LayerSource: layers are run in f32");
    if (!spec.name.starts_with(kFirst)) {
      std::fill_n(out, to.num_elements(), 0.0f);
      return;
    }
    const TensorView& from = tensors_.at(spec.name.substr(kFirst.size()));
    for (int64_t i = 0; i < to.size(0); ++i) {
      std::copy_n(from.as<float>() + (row + i) * from.size(1) + col, to.size(1),
                  out + i * to.size(1));
    }
  }

 private:
  const LayerTensors& tensors_;
};

// Adds what each of some weights is multiplied with to its statistics.
class Collector final : public ProductInputs {
 public:
  void watch(const void* weight, InputStats& stats) { stats_[weight] = &stats; }
  TensorView see(const TensorView& a, const TensorView& b) override {
    if (const auto found = stats_.find(b.data); found != stats_.end()) found->second->add(a);
    return a;
  }

 private:
  std::map<const void*, InputStats*> stats_;
};

}  // namespace

void expect_finite(const model::TensorSpec& spec, int64_t place) {
  if (place < 0) return;
  fail(concat("quantize: tensor '", spec.name, "' has a value that is not finite at [",
              place / spec.num_cols, ", ", place % spec.num_cols, "]; repair the checkpoint"));
}

LayerTensors::LayerTensors(const model::WeightSource& source,
                           const std::vector<model::TensorSpec>& specs, const std::string& prefix) {
  for (const model::TensorSpec& spec : specs) {
    if (!spec.name.starts_with(prefix)) continue;
    Tensor values(DType::f32, {spec.num_rows, spec.num_cols});
    constexpr int64_t kRowsAtOnce = 64;
    const int64_t num_parts = (spec.num_rows + kRowsAtOnce - 1) / kRowsAtOnce;
    std::vector<int64_t> bad(static_cast<size_t>(num_parts), -1);
    parallel_for(num_parts, kRowsAtOnce * spec.num_cols, [&](int64_t part) {
      const int64_t row = part * kRowsAtOnce;
      const int64_t end = std::min(spec.num_rows, row + kRowsAtOnce);
      const TensorView rows = values.view().slice(0, row, end);
      source.read(spec, row, 0, rows);
      const int64_t at = model::find_not_finite(rows);
      if (at >= 0) bad[static_cast<size_t>(part)] = row * spec.num_cols + at;
    });
    for (const int64_t at : bad) expect_finite(spec, at);
    tensors_.emplace(spec.name.substr(prefix.size()), std::move(values));
  }
}

void LayerTensors::put(const std::string& name, Tensor values) {
  Tensor& place = tensors_.at(name);
  expects(place.view().same_shape(values.view()), "LayerTensors: another shape");
  place = std::move(values);
}

std::vector<Linear> find_linears(const model::ModelConfig& config) {
  const auto dry = model::make_dry_model(one_layer(config, 0), {.dtype = DType::f32});
  const auto& by_name = dry->weights().by_name();
  std::vector<Linear> linears;
  for (const auto& [name, weight] : by_name) {
    if (!name.starts_with(kFirst) || weight.values.rank != 2) continue;
    const std::string inner = name.substr(kFirst.size());
    Linear linear{.name = inner.substr(0, inner.size() - std::string_view(".weight").size()),
                  .tensors = {}};
    const std::string scope = name.substr(0, name.rfind('.', name.size() - 8) + 1);
    const auto& specs = dry->weights().specs();
    const bool is_tensor = std::ranges::find(specs, name, &model::TensorSpec::name) != specs.end();
    int64_t rows = 0;
    for (const model::TensorSpec& spec : specs) {
      // A layer made of several tensors has a name of its own, in their scope.
      const bool is_part = is_tensor ? spec.name == name
                                     : spec.name.starts_with(scope) && !spec.is_vector &&
                                           !by_name.contains(spec.name);
      if (!is_part) continue;
      linear.tensors.push_back(spec.name.substr(kFirst.size()));
      rows += spec.num_rows;
    }
    if (rows != weight.values.size(0)) {
      fail(concat("quantize: ", inner, " has ", weight.values.size(0), " rows and its tensors ",
                  rows, "; this family is not supported"));
    }
    linears.push_back(std::move(linear));
  }
  return linears;
}

LayerRunner::LayerRunner(const model::ModelConfig& config, int64_t num_samples, int64_t length,
                         Device device)
    : config_(config),
      num_samples_(num_samples),
      length_(length),
      device_(device),
      dtype_(device.is_cpu()              ? DType::f32
             : config.dtype == DType::f16 ? DType::f16
                                          : DType::bf16),
      linears_(find_linears(config)),
      limits_{.tokens = length,
              .batch = 1,
              .max_pages = (length + kPageSize - 1) / kPageSize,
              .logits = 1,
              .max_positions = length} {
  if (num_samples == 0) return;
  streams_ = Tensor(dtype_, {num_samples * length, config.hidden}, device);
  kv_ = std::make_unique<model::KvMemory>(
      one_layer(config, 0), config.num_kv_heads,
      model::KvOptions{.num_pages = limits_.max_pages, .page_size = kPageSize, .dtype = dtype_},
      device);
  buffers_ = std::make_unique<model::BatchBuffers>(limits_, device);
}

TensorView LayerRunner::stream(int64_t sample) const {
  return streams_.view().slice(0, sample * length_, (sample + 1) * length_);
}

std::unique_ptr<model::Model> LayerRunner::make(const LayerTensors& tensors, int64_t layer) {
  const auto begin = std::chrono::steady_clock::now();
  const model::ModelConfig one = one_layer(config_, layer);
  const model::LoadOptions options{.dtype = dtype_, .device = device_};
  const auto dry = model::make_dry_model(one, options);
  const LayerSource source(tensors);
  auto made = model::make_model(one, model::Weights(options, source, dry->weights()));
  made->prepare(limits_, communicator_);
  upload_seconds_ +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return made;
}

void LayerRunner::run(model::Model& model, const TensorView& stream, ProductInputs* inputs) {
  model::HostBatch host;
  host.max_pages = limits_.max_pages;
  const auto count = static_cast<size_t>(length_);
  host.tokens.assign(count, 0);
  host.positions.resize(count);
  std::iota(host.positions.begin(), host.positions.end(), 0);
  host.slots = host.positions;
  host.page_table.resize(static_cast<size_t>(limits_.max_pages));
  std::iota(host.page_table.begin(), host.page_table.end(), 0);
  host.seq_lens = {static_cast<int32_t>(length_)};
  host.query_starts = {0, static_cast<int32_t>(length_)};
  const Context ctx{.batch_invariant = true, .product_inputs = inputs};
  model.forward_block(0, stream, buffers_->upload(host, ctx), *kv_, ctx);
}

std::map<std::string, InputStats> LayerRunner::collect(const LayerTensors& tensors, int64_t layer,
                                                       const std::vector<std::string>& names,
                                                       InputSums sums) {
  const auto model = make(tensors, layer);
  std::map<std::string, InputStats> stats;
  Collector collector;
  for (const std::string& name : names) {
    const TensorView& weight = model->weights().find(concat(kFirst, name, ".weight")).values;
    const auto [at, is_new] =
        stats.try_emplace(name, weight.size(1), sums, device_, num_samples_ * length_);
    collector.watch(weight.data, at->second);
  }
  const Tensor scratch(dtype_, {length_, config_.hidden}, device_);
  for (int64_t sample = 0; sample < num_samples_; ++sample) {
    copy({.x = stream(sample), .out = scratch});
    run(*model, scratch, &collector);
  }
  for (auto& [name, one] : stats) one.finish();
  synchronize(device_);
  return stats;
}

KvRange LayerRunner::measure_kv(const LayerTensors& tensors, int64_t layer) {
  const auto model = make(tensors, layer);
  const Tensor scratch(dtype_, {length_, config_.hidden}, device_);
  KvRange range;
  // Pages are filled in order, and beyond the sequence they are zeros.
  const auto largest = [](const TensorView& pages, float before) {
    const int64_t count = pages.num_elements();
    const Tensor floats(DType::f32, {count});
    const Tensor plain(pages.dtype, {pages.size(0), pages.size(1), pages.size(2), pages.size(3)},
                       pages.device);
    copy({.x = pages, .out = plain});
    const Tensor host = plain.to(cpu_device());
    convert(TensorView::contiguous(host.view().data, pages.dtype, {count}), floats);
    const auto* values = floats.view().as<float>();
    float most = before;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
    return most;
  };
  for (int64_t sample = 0; sample < num_samples_; ++sample) {
    copy({.x = stream(sample), .out = scratch});
    run(*model, scratch, nullptr);
    range = {largest(kv_->k_pages(0), range.k), largest(kv_->v_pages(0), range.v)};
  }
  return range;
}

void LayerRunner::advance(const LayerTensors& tensors, int64_t layer) {
  const auto model = make(tensors, layer);
  for (int64_t sample = 0; sample < num_samples_; ++sample) run(*model, stream(sample), nullptr);
  synchronize(device_);
}

}  // namespace tessera::quant
