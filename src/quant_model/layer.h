// One layer of a model: its tensors as floats, and a model of that layer alone that reads them.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/weight_source.h"
#include "tessera/quant/input_stats.h"

namespace tessera::quant {

// A linear layer of the model, which may be made of several tensors with the same inputs.
struct Linear {
  std::string name;                  // "self_attn.qkv"
  std::vector<std::string> tensors;  // "self_attn.q_proj.weight", ...
};

// Refuses a tensor with a value that is not finite at a place, counted over its rows; -1: it has
// none.
void expect_finite(const model::TensorSpec& spec, int64_t place);

// The tensors of one layer by their names within it ("self_attn.q_proj.weight"), f32 [rows, cols];
// a vector has one column.
class LayerTensors {
 public:
  // `prefix` is that of the layer's names: "model.layers.3.". Refuses values that are not finite.
  // Rows are read by all threads.
  LayerTensors(const model::WeightSource& source, const std::vector<model::TensorSpec>& specs,
               const std::string& prefix);

  const TensorView& at(const std::string& name) const { return tensors_.at(name).view(); }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  void put(const std::string& name, Tensor values);
  const std::map<std::string, Tensor>& all() const { return tensors_; }

 private:
  std::map<std::string, Tensor> tensors_;
};

// The largest absolute values of a layer's keys, as they are cached, and of its values.
struct KvRange {
  float k = 0, v = 0;
};

// Runs one layer over the residual streams of all samples: in float on the CPU, in the model's
// 16-bit type on a GPU.
class LayerRunner {
 public:
  LayerRunner(const model::ModelConfig& config, int64_t num_samples, int64_t length,
              Device device = {});

  const std::vector<Linear>& linears() const { return linears_; }
  int64_t num_samples() const { return num_samples_; }
  TensorView stream(int64_t sample) const;  // [length, hidden], on the device
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }

  // Statistics of the inputs of some linears, by name; the streams stay as they are.
  std::map<std::string, InputStats> collect(const LayerTensors& tensors, int64_t layer,
                                            const std::vector<std::string>& names, InputSums sums);
  KvRange measure_kv(const LayerTensors& tensors, int64_t layer);
  // The streams behind the layer take the place of those in front of it.
  void advance(const LayerTensors& tensors, int64_t layer);
  // What it took so far to make models of layers and bring their weights to the device.
  double upload_seconds() const { return upload_seconds_; }

 private:
  std::unique_ptr<model::Model> make(const LayerTensors& tensors, int64_t layer);
  void run(model::Model& model, const TensorView& stream, ProductInputs* inputs);

  model::ModelConfig config_;
  int64_t num_samples_ = 0;
  int64_t length_ = 0;
  Device device_;
  DType dtype_;
  std::vector<Linear> linears_;
  Tensor streams_;  // [num_samples * length, hidden]
  dist::LocalCommunicator communicator_;
  std::unique_ptr<model::KvMemory> kv_;
  std::unique_ptr<model::BatchBuffers> buffers_;
  model::BatchLimits limits_;
  double upload_seconds_ = 0;
};

// The linear layers of one layer, in the order of their names.
std::vector<Linear> find_linears(const model::ModelConfig& config);

}  // namespace tessera::quant
