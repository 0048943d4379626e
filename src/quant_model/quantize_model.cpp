// A checkpoint from one folder to another, layer by layer.
// SPDX-License-Identifier: MIT
#include "tessera/quant/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "model/model.h"
#include "quant_model/fold.h"
#include "quant_model/layer.h"
#include "quant_model/output_config.h"
#include "quant_model/run_state.h"
#include "quant_model/stored_weight.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

namespace fs = std::filesystem;

double norm_of(const TensorView& w) {
  double sum = 0;
  for (int64_t i = 0; i < w.num_elements(); ++i) {
    sum += double{w.as<float>()[i]} * w.as<float>()[i];
  }
  return std::sqrt(sum);
}

double distance(const TensorView& a, const TensorView& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double d = double{a.as<float>()[i]} - b.as<float>()[i];
    sum += d * d;
  }
  return std::sqrt(sum);
}

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

void check_options(const ModelQuantOptions& options) {
  const CodeFormat codes = options.format.codes;
  const bool is_integer = codes == CodeFormat::int4 || codes == CodeFormat::int8;
  const auto refuse = [&](std::string_view why) {
    fail(concat("quantize: method ", name(options.method), " with ", name(codes), " weights in ",
                name(options.files), " files: ", why));
  };
  if (options.method == Method::gptq && !is_integer) refuse("gptq makes int4 and int8; use rtn");
  if (options.method == Method::awq && codes != CodeFormat::int4) refuse("awq makes int4");
  if (options.method == Method::smoothquant && codes != CodeFormat::int8 &&
      codes != CodeFormat::fp8) {
    refuse("smoothquant makes int8 and fp8");
  }
  if (options.quantizes_inputs && codes == CodeFormat::int4) {
    refuse("inputs of 8 bits go with weights of 8 bits");
  }
  if (options.files == FileFormat::gptq && !is_integer) refuse("these files hold int4 and int8");
  if (options.files != FileFormat::compressed_tensors && options.quantizes_inputs) {
    refuse("these files say nothing about inputs; use compressed-tensors");
  }
  if (options.method != Method::rtn && options.samples.empty()) {
    refuse("it needs calibration samples, and there are none");
  }
  for (const std::vector<int32_t>& sample : options.samples) {
    if (sample.empty() || sample.size() != options.samples.front().size()) {
      fail(concat("quantize: samples of ", sample.size(), " and ", options.samples.front().size(),
                  " tokens; they must all have the same length, at least 1"));
    }
  }
}

// A run over a model's layers.
class Run {
 public:
  Run(const fs::path& from, const fs::path& to, const ModelQuantOptions& options)
      : from_(from),
        to_(to),
        options_(options),
        config_(model::load_config(from)),
        checkpoint_(model::Checkpoint::open(from)),
        dry_(model::make_dry_model(config_, {.dtype = DType::f32})),
        source_(model::make_stored_source(checkpoint_, config_, dry_->weights().specs())),
        runner_(config_, is_calibrated() ? std::ssize(options.samples) : 0,
                is_calibrated() ? std::ssize(options.samples.front()) : 0),
        state_(to, fingerprint(options, checkpoint_), config_.num_layers) {
    form_ = {.files = options.files, .format = options.format};
    form_.format.scale_dtype = options.files == FileFormat::gptq ? DType::f16 : checkpoint_dtype();
    form_.packs_int8 = !options.quantizes_inputs;
    if (options.method == Method::awq || options.method == Method::smoothquant) {
      folds_ = find_folds(config_);
    }
  }

  ModelQuantReport go() {
    check_weights();
    start_streams();
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      layer_ = layer;
      report("reading");
      LayerTensors tensors(*source_, dry_->weights().specs(), prefix());
      if (state_.has_layer(layer)) {
        ++num_resumed_;
        restore(tensors);
      } else {
        quantize_layer(tensors);
      }
      report("forward");
      if (is_calibrated() && layer + 1 < config_.num_layers) runner_.advance(tensors, layer);
    }
    layer_ = config_.num_layers;
    report("writing");
    return finish();
  }

 private:
  bool is_calibrated() const { return options_.method != Method::rtn; }
  std::string prefix() const { return concat("model.layers.", layer_, "."); }
  // The type of the embeddings, which is that of the checkpoint.
  DType checkpoint_dtype() const {
    const model::StoredTensor* stored = checkpoint_.find("model.embed_tokens.weight");
    return stored == nullptr ? config_.dtype : model::loadable_dtype(*stored);
  }
  bool keeps(const std::string& tensor) const {
    return std::ranges::any_of(options_.keep, [&](const std::string& part) {
      return !part.empty() && tensor.find(part) != std::string::npos;
    });
  }
  std::vector<std::string> quantized_tensors(const Linear& linear) const {
    std::vector<std::string> tensors;
    for (const std::string& tensor : linear.tensors) {
      if (!keeps(prefix() + tensor)) tensors.push_back(tensor);
    }
    return tensors;
  }
  void report(std::string_view what) const {
    if (!options_.on_progress) return;
    const std::string note = concat("layer ", layer_, ": ", what);
    options_.on_progress({.num_done = layer_, .num_layers = config_.num_layers, .note = note});
  }

  // Refuses a weight that the format cannot hold before any work is done.
  void check_weights() const {
    for (const Linear& linear : runner_.linears()) {
      for (const std::string& tensor : linear.tensors) {
        const auto& specs = dry_->weights().specs();
        for (const model::TensorSpec& spec : specs) {
          if (!spec.name.ends_with("." + tensor) || keeps(spec.name)) continue;
          check_format(form_.format, spec.num_rows, spec.num_cols, "quantize: " + spec.name);
        }
      }
    }
  }

  void start_streams() {
    if (!is_calibrated()) return;
    const auto length = std::ssize(options_.samples.front());
    if (length > config_.max_positions) {
      fail(concat("quantize: samples of ", length, " tokens; this model takes at most ",
                  config_.max_positions));
    }
    const auto& specs = dry_->weights().specs();
    const auto spec = std::ranges::find(specs, std::string("model.embed_tokens.weight"),
                                        &model::TensorSpec::name);
    for (int64_t sample = 0; sample < runner_.num_samples(); ++sample) {
      const TensorView stream = runner_.stream(sample);
      for (int64_t i = 0; i < length; ++i) {
        const int32_t token = options_.samples[static_cast<size_t>(sample)][static_cast<size_t>(i)];
        if (token < 0 || token >= config_.vocab) {
          fail(concat("quantize: sample ", sample, " has token ", token, "; the model has ",
                      config_.vocab));
        }
        source_->read(*spec, token, 0, stream.slice(0, i, i + 1));
      }
      auto* values = stream.as<float>();
      for (int64_t i = 0; i < stream.num_elements(); ++i) values[i] *= config_.embedding_scale;
    }
  }

  QuantizedWeight quantize_tensor(const std::string& tensor, const TensorView& w,
                                  const InputStats* stats, const Gptq* gptq) const {
    if (gptq != nullptr) return gptq->quantize(w, form_.format);
    // The clipped range of queries and keys would change scores, which softmax amplifies.
    const bool is_score = tensor.find("q_proj") != std::string::npos ||
                          tensor.find("k_proj") != std::string::npos ||
                          tensor.find("qkv_proj") != std::string::npos;
    if (options_.method == Method::awq && options_.search_clip && !is_score) {
      return quantize_clipped(w, stats->mean_square(), form_.format);
    }
    return quantize_rtn(w, form_.format);
  }

  // Quantises the tensors of one linear layer and puts their values in place of the original.
  void quantize_linear(const Linear& linear, const InputStats* stats, LayerTensors& tensors) {
    const std::vector<std::string> chosen = quantized_tensors(linear);
    if (chosen.empty()) return;
    std::unique_ptr<Gptq> gptq;
    if (options_.method == Method::gptq) gptq = std::make_unique<Gptq>(*stats, options_.gptq);
    for (const std::string& tensor : chosen) {
      const TensorView& w = tensors.at(tensor);
      const QuantizedWeight made = quantize_tensor(tensor, w, stats, gptq.get());
      Tensor values = dequantize(made);
      const std::string module = prefix() + module_of(tensor);
      LinearReport one{.name = module, .weight_error = distance(w, values) / norm_of(w)};
      if (stats != nullptr && stats->has_products()) {
        const Tensor nothing = Tensor::zeros(DType::f32, {w.size(0), w.size(1)});
        one.output_error =
            std::sqrt(output_error(w, values, *stats) / output_error(w, nothing, *stats));
      }
      done_.push_back(one);
      for (FileTensor& stored : to_stored(module, made, form_)) files_.push_back(std::move(stored));
      replaced_.insert(tensor);
      tensors.put(tensor, std::move(values));
    }
  }

  void fold_all(std::map<std::string, InputStats>& stats, LayerTensors& tensors) {
    for (const Fold& fold : folds_) {
      // SmoothQuant moves magnitude into norms alone.
      if (options_.method == Method::smoothquant && fold.norm.empty()) continue;
      const auto linear = std::ranges::find(runner_.linears(), fold.linear, &Linear::name);
      if (linear == runner_.linears().end() || quantized_tensors(*linear).empty()) continue;
      report(fold.linear);
      InputStats& inputs = stats.at(fold.linear);
      std::vector<TensorView> weights;
      for (const std::string& tensor : linear->tensors) weights.push_back(tensors.at(tensor));
      std::vector<float> scales =
          options_.method == Method::awq
              ? search_awq_scales(weights, inputs, form_.format, fold.owners)
              : smooth_scales(weights, inputs, options_.alpha);
      fold_scales(fold, *linear, norm_dtype(fold), scales, tensors);
      inputs.divide_columns(scales);
      changed_.insert(fold.norm.empty() ? fold.tensor : fold.norm);
      if (fold.norm.empty()) changed_.insert(module_of(fold.tensor) + ".bias");
      changed_.insert(linear->tensors.begin(), linear->tensors.end());
    }
  }
  DType norm_dtype(const Fold& fold) const {
    if (fold.norm.empty()) return DType::f32;
    return model::loadable_dtype(*checkpoint_.find(prefix() + fold.norm));
  }

  void quantize_layer(LayerTensors& tensors) {
    files_.clear();
    done_.clear();
    replaced_.clear();
    changed_.clear();
    if (options_.method == Method::gptq) {
      // In the order of the computation: each sees the inputs that the quantised ones before it
      // make.
      for (const std::string_view name :
           {"self_attn.qkv", "self_attn.o_proj", "mlp.gate_up", "mlp.down_proj"}) {
        const auto linear = std::ranges::find(runner_.linears(), name, &Linear::name);
        if (linear == runner_.linears().end() || quantized_tensors(*linear).empty()) continue;
        report(name);
        const auto stats = runner_.collect(tensors, layer_, {std::string(name)}, true);
        quantize_linear(*linear, &stats.begin()->second, tensors);
      }
    } else if (is_calibrated()) {
      report("calibration");
      std::vector<std::string> names;
      for (const Linear& linear : runner_.linears()) names.push_back(linear.name);
      auto stats = runner_.collect(tensors, layer_, names, true);
      fold_all(stats, tensors);
      for (const Linear& linear : runner_.linears()) {
        quantize_linear(linear, &stats.at(linear.name), tensors);
      }
    } else {
      for (const Linear& linear : runner_.linears()) quantize_linear(linear, nullptr, tensors);
    }
    add_rest(tensors);
    const int64_t bytes = write_tensors(state_.shard(layer_), files_);
    state_.add_layer(layer_, done_, files_, bytes);
  }

  FileTensor raw(const model::StoredTensor& stored) const {
    FileTensor tensor{stored.name, stored.type, stored.shape,
                      std::vector<std::byte>(static_cast<size_t>(stored.num_bytes))};
    stored.file->read(stored.begin, tensor.bytes);
    return tensor;
  }

  // Tensors of the layer that hold values: as they were, or with scales folded in.
  void add_rest(const LayerTensors& tensors) {
    for (const auto& [name, values] : tensors.all()) {
      if (replaced_.contains(name)) continue;
      const model::StoredTensor& stored = *checkpoint_.find(prefix() + name);
      if (changed_.contains(name)) {
        files_.push_back(
            plain_tensor(stored.name, values.view(), model::loadable_dtype(stored), stored.shape));
      } else {
        files_.push_back(raw(stored));
      }
    }
  }

  // The values that a run before this one left in the layer's file.
  void restore(LayerTensors& tensors) const {
    if (!is_calibrated()) return;
    const model::Checkpoint shard = model::Checkpoint::open_file(state_.shard(layer_));
    for (const auto& [name, values] : tensors.all()) {
      const std::string tensor = prefix() + name;
      const bool is_linear = std::ranges::any_of(runner_.linears(), [&](const Linear& linear) {
        return std::ranges::find(linear.tensors, name) != linear.tensors.end();
      });
      if (is_linear && !keeps(tensor)) {
        tensors.put(name, read_stored(shard, module_of(tensor), form_));
        continue;
      }
      const model::StoredTensor& stored = *shard.find(tensor);
      std::vector<std::byte> bytes(static_cast<size_t>(stored.num_bytes));
      stored.file->read(stored.begin, bytes);
      Tensor floats(DType::f32, {values.view().size(0), values.view().size(1)});
      const int64_t count = values.view().num_elements();
      convert(TensorView::contiguous(bytes.data(), *stored.dtype, {count}),
              TensorView::contiguous(floats.view().data, DType::f32, {count}));
      tensors.put(name, std::move(floats));
    }
  }

  ModelQuantReport finish() {
    std::vector<FileTensor> rest;
    for (const auto& [name, stored] : checkpoint_.tensors()) {
      if (!name.starts_with("model.layers.")) rest.push_back(raw(stored));
    }
    const int64_t bytes = write_tensors(state_.shard(config_.num_layers), rest);
    state_.add_layer(config_.num_layers, {}, rest, bytes);
    std::vector<std::string> ignored = {"lm_head"};
    for (layer_ = 0; layer_ < config_.num_layers; ++layer_) {
      for (const Linear& linear : runner_.linears()) {
        for (const std::string& tensor : linear.tensors) {
          if (keeps(prefix() + tensor)) ignored.push_back(prefix() + module_of(tensor));
        }
      }
    }
    ModelQuantReport report = state_.finish(from_, options_, form_, ignored);
    for (const auto& [name, stored] : checkpoint_.tensors()) {
      report.bytes_before += stored.num_bytes;
    }
    report.num_resumed = num_resumed_;
    return report;
  }

  fs::path from_, to_;
  const ModelQuantOptions& options_;
  model::ModelConfig config_;
  model::Checkpoint checkpoint_;
  std::unique_ptr<model::Model> dry_;
  std::unique_ptr<model::WeightSource> source_;
  LayerRunner runner_;
  RunState state_;
  StoredForm form_;
  std::vector<Fold> folds_;
  int64_t layer_ = 0;
  int64_t num_resumed_ = 0;
  // Of the current layer:
  std::vector<FileTensor> files_;
  std::vector<LinearReport> done_;
  std::set<std::string> replaced_;  // tensors that became codes
  std::set<std::string> changed_;   // tensors that scales were folded into
};

}  // namespace

std::optional<Method> find_method(std::string_view text) {
  for (const Method method : kAllMethods) {
    if (name(method) == text) return method;
  }
  return std::nullopt;
}

std::optional<FileFormat> find_file_format(std::string_view text) {
  for (const FileFormat format : kAllFileFormats) {
    if (name(format) == text) return format;
  }
  return std::nullopt;
}

ModelQuantReport quantize_model(const fs::path& from, const fs::path& to,
                                const ModelQuantOptions& options) {
  check_options(options);
  return Run(from, to, options).go();
}

}  // namespace tessera::quant
