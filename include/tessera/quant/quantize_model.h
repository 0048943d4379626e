// Quantises the linear layers of a checkpoint: from one folder to another, layer by layer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/quant/quantizers.h"

namespace tessera::quant {

enum class Method : uint8_t { rtn, gptq, awq, smoothquant };
inline constexpr Method kAllMethods[] = {Method::rtn, Method::gptq, Method::awq,
                                         Method::smoothquant};
constexpr std::string_view name(Method method) {
  constexpr std::string_view kNames[] = {"rtn", "gptq", "awq", "smoothquant"};
  return kNames[static_cast<size_t>(method)];
}
std::optional<Method> find_method(std::string_view text);

// How the result is written.
enum class FileFormat : uint8_t {
  compressed_tensors,
  gptq,
  dense,  // the values that the codes stand for, in f32: for engines that read no codes
};
inline constexpr FileFormat kAllFileFormats[] = {FileFormat::compressed_tensors, FileFormat::gptq,
                                                 FileFormat::dense};
constexpr std::string_view name(FileFormat format) {
  constexpr std::string_view kNames[] = {"compressed-tensors", "gptq", "dense"};
  return kNames[static_cast<size_t>(format)];
}
std::optional<FileFormat> find_file_format(std::string_view text);

struct QuantizeProgress {
  int64_t num_done = 0;  // layers
  int64_t num_layers = 0;
  std::string_view note;  // "layer 3: self_attn.qkv"
};

struct ModelQuantOptions {
  Method method = Method::gptq;
  // scale_dtype is set by the checkpoint's type, or to f16 by FileFormat::gptq.
  QuantFormat format;
  FileFormat files = FileFormat::compressed_tensors;
  GptqOptions gptq;
  bool search_clip = true;             // AWQ
  double alpha = 0.5;                  // SmoothQuant
  bool quantizes_inputs = false;       // the config asks for inputs of 8 bits, scaled by token
  bool has_static_inputs = false;      // or by one scale for each layer, from the samples
  bool calibrates_kv = false;          // scales of keys and values for an e4m3 cache
  Device device = {};                  // where samples run through the layers
  std::vector<std::string> keep = {};  // tensors whose name contains one of these stay as they are
  // Token ids, all of one length: what the methods other than rtn are calibrated with.
  std::vector<std::vector<int32_t>> samples = {};
  std::function<void(const QuantizeProgress&)> on_progress = {};
};

struct LinearReport {
  std::string name;         // "model.layers.0.mlp.down_proj"
  double weight_error = 0;  // |w - value| / |w|, Euclidean
  double output_error = 0;  // the same of the outputs over the calibration inputs; 0 for rtn
};

// What a part of the work took, over all layers.
struct QuantizeTime {
  std::string_view part;  // "samples", "factors", ...
  double seconds = 0;
};

struct ModelQuantReport {
  std::vector<LinearReport> layers;
  std::vector<QuantizeTime> times;
  int64_t bytes_before = 0;  // of all tensors
  int64_t bytes_after = 0;
  int64_t num_resumed = 0;  // layers that a run before this one had finished
};

// Writes the tensors of each layer to a file of its own as soon as the layer is done, under another
// name first, so that a run that is stopped loses one layer at most: call it again with the same
// options and it goes on. The files of a run that was stopped and resumed are the same, byte for
// byte, as those of one that was not. Refuses, by name, what the method or the format cannot do,
// and a folder that holds something else.
//
// On the CPU samples run through the layers in float, on a GPU in the checkpoint's 16-bit type.
// Beside one layer of the model it keeps the residual stream of all samples: their tokens times the
// hidden size, 4 or 2 bytes each; on a GPU also inputs of a linear layer, up to 1 GB.
ModelQuantReport quantize_model(const std::filesystem::path& from, const std::filesystem::path& to,
                                const ModelQuantOptions& options);

struct Likelihood {
  double nll = 0;  // per token, natural logarithm
  int64_t num_tokens = 0;
};

// How well the model of a folder predicts every token of `windows` but the first of each. Codes of
// the folder are dequantised to float, and inputs are rounded to codes where its config asks for
// it.
Likelihood measure_likelihood(const std::filesystem::path& folder,
                              const std::vector<std::vector<int32_t>>& windows,
                              const std::function<void(int64_t done, double nll)>& on_window = {});

}  // namespace tessera::quant
