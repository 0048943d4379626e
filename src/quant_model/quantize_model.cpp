// A checkpoint from one folder to another, layer by layer.
// SPDX-License-Identifier: MIT
#include "tessera/quant/quantize_model.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <type_traits>

#include "core/read_file.h"
#include "core/text.h"
#include "model/model.h"
#include "quant_model/check_options.h"
#include "quant_model/embed_samples.h"
#include "quant_model/fold.h"
#include "quant_model/layer.h"
#include "quant_model/output_config.h"
#include "quant_model/part_times.h"
#include "quant_model/round_stored.h"
#include "quant_model/run_state.h"
#include "quant_model/stored_weight.h"
#include "quant_model/weight_error.h"
#include "tessera/core/error.h"

namespace tessera::quant {
namespace {

namespace fs = std::filesystem;

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

// What is written of a layer.
struct MadeLayer {
  std::vector<QuantizedWeight> weights;  // lend files their codes
  std::vector<FileTensor> files;
  std::vector<LinearReport> reports;
};

// A run over a model's layers.
class Run {
 public:
  Run(const fs::path& from, const fs::path& to, const ModelQuantOptions& options)
      : from_(from),
        options_(options),
        config_(model::load_config(from)),
        checkpoint_(model::Checkpoint::open(from)),
        dry_(model::make_dry_model(config_, {.dtype = DType::f32})),
        source_(model::make_stored_source(checkpoint_, config_, dry_->weights().specs())),
        runner_(config_, is_calibrated() ? std::ssize(options.samples) : 0,
                is_calibrated() ? std::ssize(options.samples.front()) : 0, options.device),
        state_(to, fingerprint(options, checkpoint_), config_.num_layers) {
    for (int64_t i = 0; i < config_.num_layers; ++i) was_there_.push_back(state_.has_layer(i));
    form_ = {.files = options.files, .format = options.format};
    form_.format.scale_dtype = options.files == FileFormat::gptq ? DType::f16 : checkpoint_dtype();
    form_.packs_int8 = !options.quantizes_inputs;
    if (options.method == Method::awq || options.method == Method::smoothquant) {
      folds_ = find_folds(config_);
    }
  }

  ModelQuantReport go() {
    check_weights();
    if (is_calibrated()) {
      timed("samples", [&] {
        embed_samples(config_, *source_, dry_->weights().specs(), options_.samples, runner_);
      });
    } else {
      rest_ = std::async(std::launch::async, [this] { return write_rest(); });
    }
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      layer_ = layer;
      const bool was_there = was_there_[static_cast<size_t>(layer)];
      if (was_there) ++num_resumed_;
      if (!is_calibrated()) {
        if (!was_there) round_layer();
        continue;
      }
      report("reading");
      LayerTensors tensors = read_layer(dry_->weights().specs());
      if (was_there) {
        restore(tensors);
      } else {
        quantize_layer(tensors);
      }
      report("forward");
      if (layer + 1 < config_.num_layers) {
        timed("samples", [&] { runner_.advance(tensors, layer); });
      }
    }
    wait_for_writing();
    layer_ = config_.num_layers;
    report("writing");
    ModelQuantReport made = timed("writing", [&] { return finish(); });
    made.times = times_.all();
    made.times.push_back({"samples, of that weights to the device", runner_.upload_seconds()});
    return made;
  }

 private:
  // What `work` returns; its time is counted as that of a part.
  template <class Work>
  auto timed(std::string_view part, Work&& work) -> std::invoke_result_t<Work&> {
    return times_.measure(part, work);
  }
  bool is_calibrated() const { return needs_samples(options_); }
  std::string prefix() const { return concat("model.layers.", layer_, "."); }
  // The layer's tensors among `specs`.
  LayerTensors read_layer(const std::vector<model::TensorSpec>& specs) {
    return timed("reading", [&] { return LayerTensors(*source_, specs, prefix()); });
  }
  void wait_for_writing() {
    if (writing_.valid()) timed("writing", [&] { writing_.get(); });
  }
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
    if (options_.method == Method::gptq) {
      timed("factors", [&] { gptq = std::make_unique<Gptq>(*stats, options_.gptq); });
    }
    for (const std::string& tensor : chosen) {
      const TensorView& w = tensors.at(tensor);
      QuantizedWeight made =
          timed("codes", [&] { return quantize_tensor(tensor, w, stats, gptq.get()); });
      Tensor values = timed("codes", [&] { return dequantize(made); });
      const std::string module = prefix() + module_of(tensor);
      timed("errors", [&] { made_.reports.push_back(report_of(module, w, values, stats)); });
      add_weight(tensor, std::move(made));
      if (options_.has_static_inputs) {
        const float scale = static_input_scale(*stats, form_.format.code_dtype());
        made_.files.push_back(scale_tensor(module + ".input_scale", scale));
      }
      tensors.put(tensor, std::move(values));
    }
  }
  void add_weight(const std::string& tensor, QuantizedWeight weight) {
    replaced_.insert(tensor);
    made_.weights.push_back(std::move(weight));
    timed("writing", [&] {
      const std::string module = prefix() + module_of(tensor);
      std::ranges::move(to_stored(module, made_.weights.back(), form_),
                        std::back_inserter(made_.files));
    });
  }

  // Without calibration only the codes of a layer are needed: a few rows at a time are read and
  // rounded, and the layer is written while the next one is rounded.
  void round_layer() {
    start_layer();
    report("rounding");
    std::map<std::string, model::TensorSpec> specs;
    for (const model::TensorSpec& spec : dry_->weights().specs()) specs.emplace(spec.name, spec);
    for (const Linear& linear : runner_.linears()) {
      for (const std::string& tensor : quantized_tensors(linear)) {
        const auto spec = specs.extract(prefix() + tensor);
        RoundedWeight made =
            timed("codes", [&] { return round_stored(*source_, spec.mapped(), form_.format); });
        made_.reports.push_back({.name = prefix() + module_of(tensor), .weight_error = made.error});
        add_weight(tensor, std::move(made.weight));
      }
    }
    std::vector<model::TensorSpec> others;
    for (const auto& [name, spec] : specs) others.push_back(spec);
    add_rest(read_layer(others));
    wait_for_writing();
    writing_ = std::async(std::launch::async, [this, layer = layer_, made = std::move(made_)] {
      write_layer(layer, made);
    });
  }
  void start_layer() {
    made_ = {};
    replaced_.clear();
    changed_.clear();
  }
  void write_layer(int64_t layer, const MadeLayer& made) {
    const int64_t bytes = write_tensors(state_.shard(layer), made.files);
    state_.add_layer(layer, made.reports, made.files, bytes);
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
    start_layer();
    if (options_.method == Method::gptq) {
      // In the order of the computation: each sees the inputs that the quantised ones before it
      // make.
      for (const std::string_view name :
           {"self_attn.qkv", "self_attn.o_proj", "mlp.gate_up", "mlp.down_proj"}) {
        const auto linear = std::ranges::find(runner_.linears(), name, &Linear::name);
        if (linear == runner_.linears().end() || quantized_tensors(*linear).empty()) continue;
        report(name);
        const InputSums sums = options_.has_static_inputs ? InputSums::all : InputSums::products;
        const auto stats = timed(
            "samples", [&] { return runner_.collect(tensors, layer_, {std::string(name)}, sums); });
        quantize_linear(*linear, &stats.begin()->second, tensors);
      }
    } else if (options_.method != Method::rtn || options_.has_static_inputs) {
      report("calibration");
      std::vector<std::string> names;
      for (const Linear& linear : runner_.linears()) names.push_back(linear.name);
      const InputSums sums = options_.method == Method::rtn ? InputSums::columns : InputSums::all;
      const auto collect = [&] { return runner_.collect(tensors, layer_, names, sums); };
      auto stats = timed("samples", collect);
      timed("scales", [&] { fold_all(stats, tensors); });
      // Folding divided the inputs, which changes their distribution: it is measured again.
      if (options_.has_static_inputs && !folds_.empty()) {
        stats = timed("samples", collect);
      }
      for (const Linear& linear : runner_.linears()) {
        quantize_linear(linear, &stats.at(linear.name), tensors);
      }
    } else {
      for (const Linear& linear : runner_.linears()) quantize_linear(linear, nullptr, tensors);
    }
    add_rest(tensors);
    if (options_.calibrates_kv) {
      report("keys and values");
      const KvRange range = runner_.measure_kv(tensors, layer_);
      const float most = quant_max(DType::e4m3);
      made_.files.push_back(scale_tensor(prefix() + "self_attn.k_scale", range.k / most));
      made_.files.push_back(scale_tensor(prefix() + "self_attn.v_scale", range.v / most));
    }
    timed("writing", [&] { write_layer(layer_, made_); });
  }

  static FileTensor raw(const model::StoredTensor& stored) {
    return {.name = stored.name, .type = stored.type, .shape = stored.shape, .copied = &stored};
  }

  // Tensors of the layer that hold values: as they were, or with scales folded in.
  void add_rest(const LayerTensors& tensors) {
    for (const auto& [name, values] : tensors.all()) {
      if (replaced_.contains(name)) continue;
      const model::StoredTensor& stored = *checkpoint_.find(prefix() + name);
      if (changed_.contains(name)) {
        made_.files.push_back(
            plain_tensor(stored.name, values.view(), model::loadable_dtype(stored), stored.shape));
      } else {
        made_.files.push_back(raw(stored));
      }
    }
  }

  // The values that a run before this one left in the layer's file.
  void restore(LayerTensors& tensors) const {
    const model::Checkpoint shard = model::Checkpoint::open_file(state_.shard(layer_));
    const model::ModelConfig written = model::parse_config(
        quantized_config(read_file(from_ / "config.json", 1 << 20), options_, form_, ignored()),
        "config.json");
    std::vector<model::TensorSpec> specs;
    for (const model::TensorSpec& spec : dry_->weights().specs()) {
      if (spec.name.starts_with(prefix())) specs.push_back(spec);
    }
    const auto source = model::make_stored_source(shard, written, specs);
    tensors = LayerTensors(*source, specs, prefix());
  }

  // Modules that stay as they were.
  std::vector<std::string> ignored() const {
    std::vector<std::string> modules = {"lm_head"};
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      for (const Linear& linear : runner_.linears()) {
        for (const std::string& tensor : linear.tensors) {
          const std::string name = concat("model.layers.", layer, ".", tensor);
          if (keeps(name)) modules.push_back(module_of(name));
        }
      }
    }
    return modules;
  }

  // Tensors that belong to no layer.
  std::vector<FileTensor> rest() const {
    std::vector<FileTensor> tensors;
    for (const auto& [name, stored] : checkpoint_.tensors()) {
      if (!name.starts_with("model.layers.")) tensors.push_back(raw(stored));
    }
    return tensors;
  }
  int64_t write_rest() const { return write_tensors(state_.shard(config_.num_layers), rest()); }

  ModelQuantReport finish() {
    const int64_t bytes = rest_.valid() ? rest_.get() : write_rest();
    state_.add_layer(config_.num_layers, {}, rest(), bytes);
    ModelQuantReport report = state_.finish(from_, options_, form_, ignored());
    for (const auto& [name, stored] : checkpoint_.tensors()) {
      report.bytes_before += stored.num_bytes;
    }
    report.num_resumed = num_resumed_;
    return report;
  }

  fs::path from_;
  const ModelQuantOptions& options_;
  model::ModelConfig config_;
  model::Checkpoint checkpoint_;
  std::unique_ptr<model::Model> dry_;
  std::unique_ptr<model::WeightSource> source_;
  LayerRunner runner_;
  RunState state_;
  StoredForm form_;
  std::vector<Fold> folds_;
  std::vector<bool> was_there_;  // by layer: finished by a run before this one
  int64_t layer_ = 0;
  int64_t num_resumed_ = 0;
  std::future<int64_t> rest_;  // tensors that belong to no layer are being written
  std::future<void> writing_;  // and the last layer
  // Of the current layer:
  MadeLayer made_;
  std::set<std::string> replaced_;  // tensors that became codes
  std::set<std::string> changed_;   // tensors that scales were folded into
  PartTimes times_;
};

}  // namespace

ModelQuantReport quantize_model(const fs::path& from, const fs::path& to,
                                const ModelQuantOptions& options) {
  check_options(options);
  return Run(from, to, options).go();
}

}  // namespace tessera::quant
