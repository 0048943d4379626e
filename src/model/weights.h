// The weights of one rank. Layers ask for theirs while they are constructed. On the CPU a tensor is
// read as soon as it is asked for; on a GPU it gets its place, and finish() reads all of them
// (weight_upload.h).
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/coded_weight.h"
#include "model/memory.h"
#include "model/slice_reader.h"
#include "model/weight_source.h"
#include "model/weight_upload.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/weight.h"
#include "tessera/ops/weight_format.h"

namespace tessera::model {

using tessera::WeightFormat;
class StoredFormats;

struct LoadOptions {
  DType dtype = DType::bf16;  // of activations, and of weights that are not quantised
  WeightFormat format = WeightFormat::stored;
  int64_t weight_group = kDefaultWeightGroup;  // inputs per scale of WeightFormat::int4
  ActivationFormat activations =
      ActivationFormat::automatic;  // of layers with weights of 8-bit codes
  Device device = {};
  int rank = 0;  // which share of the heads, of inter and of the vocabulary to load
  int num_ranks = 1;
  bool check_values = false;  // refuse NaN and infinity, naming the tensor; always done where
                              // values are quantised
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress = {};
  std::shared_ptr<Carrier> carrier = {};              // for a GPU; null: made when it is needed
  std::shared_ptr<const StoredFormats> formats = {};  // of the checkpoint; null: all are values
};

// The weight of a linear layer: values in the model's dtype, or codes. Tensors of rank 0 are
// absent.
struct LinearWeight {
  TensorView values;           // [out, in]
  TensorView scale = {};       // as Weight has it
  TensorView zero_point = {};  // u8
  TensorView order = {};       // i32 [in]
  TensorView table = {};       // f32 [16]
  int64_t rows_per_scale = 1;
  int64_t group = 0;
  Packing packing = Packing::rows;
  InputForm inputs = {};  // what it is multiplied by

  Weight as_weight() const;
};

// How the weights of linear layers are kept, and how many there are.
struct KeptWeights {
  std::string as;  // "i4, groups of 128", or "bf16, dequantised from nf4"
  int64_t count = 0;
  int64_t num_bytes = 0;
};

class Weights {
 public:
  // Reads from `source` until finish() has returned. `dry` has been asked for the same weights: it
  // says how much there is to read and to allocate.
  Weights(const LoadOptions& options, const WeightSource& source, const Weights& dry);
  // A dry one: nothing is read or allocated, but everything is counted.
  explicit Weights(const LoadOptions& options);

  const LoadOptions& options() const { return options_; }
  bool is_dry() const { return pool_.is_dry(); }
  // This rank's part of a size that all ranks share. Refuses one that they cannot share evenly.
  int64_t share(std::string_view what, int64_t size) const;

  // The slices, one below the other, as one tensor in the model's dtype. It is a vector where the
  // slices are of vectors. With interleave > 0 rows come from each slice in turn, that many at a
  // time, as pack_gate_up orders them. `name` is what find() calls the result.
  TensorView dense(const std::string& name, const std::vector<Slice>& slices,
                   int64_t interleave = 0);
  // The same in the format of the options.
  LinearWeight linear(const std::string& name, const std::vector<Slice>& slices,
                      int64_t interleave = 0);
  // Lists a tensor that belongs to the model although this rank does not read it.
  void mention(const TensorSpec& spec);
  // A weight that some layer asked for; refuses a name that none did.
  const LinearWeight& find(std::string_view name) const;
  const std::vector<KeptWeights>& kept() const { return kept_; }  // of linear layers, by form

  const std::map<std::string, LinearWeight, std::less<>>& by_name() const { return by_name_; }

  const std::vector<TensorSpec>& specs() const { return specs_; }  // all that was asked for, once
  int64_t num_parameters() const;                                  // elements of these
  int64_t read_bytes(const WeightSource& source) const;  // of all slices, as the source has them
  int64_t size_bytes() const { return pool_.size_bytes(); }
  int64_t largest_bytes() const { return pool_.largest_bytes(); }
  int64_t total_bytes() const { return total_bytes_; }  // that were to be read; 0 of a dry one
  // Reads what is still to be read, and needs the source no longer.
  void finish();
  const UploadTimes& upload_times() const { return upload_times_; }  // zeros on the CPU

 private:
  struct Shape;
  // With codes, what is read counts as codes.
  Shape note(const std::vector<Slice>& slices, const CodeForm* codes = nullptr);
  void note_kept(const std::string& as, const LinearWeight& weight);
  TensorView keep(Tensor tensor);
  LinearWeight make_dry(const CodeForm& form, int64_t num_rows, int64_t num_cols);
  LinearWeight put(HostWeight made);
  LinearWeight pack(const HostWeight& made, Packing packing);
  InputForm make_inputs(const CodeForm& form, const std::vector<Slice>& slices, int64_t num_rows);
  void fill_codes(const Slice& slice, const Placement& place, HostWeight& to);
  void fill_order(const std::vector<Slice>& slices, HostWeight& to) const;
  void fill_table(const std::vector<Slice>& slices, HostWeight& to) const;
  void fill(const TensorView& matrix, const std::vector<Slice>& slices, int64_t interleave);
  void report(int64_t num_bytes);
  int64_t stored_bytes(const Slice& slice) const;

  LoadOptions options_;
  const WeightSource* source_ = nullptr;
  TensorPool pool_;
  std::vector<TensorSpec> specs_;
  std::set<std::string, std::less<>> spec_names_;
  std::map<std::string, LinearWeight, std::less<>> by_name_;
  std::vector<KeptWeights> kept_;
  std::vector<std::pair<TensorSpec, int64_t>> reads_;  // of a dry one: how many elements of what
  int64_t code_bytes_ = 0;                             // of a dry one: read as codes
  std::unique_ptr<WeightUpload> upload_;               // null on the CPU
  UploadTimes upload_times_;
  int64_t read_bytes_ = 0;  // so far
  int64_t total_bytes_ = 0;
};

// Where a layer's tensors are: the weights, and the prefix of the names.
class WeightScope {
 public:
  explicit WeightScope(Weights& weights, std::string prefix = {})
      : weights_(&weights), prefix_(std::move(prefix)) {}

  WeightScope at(std::string_view name) const {
    return WeightScope(*weights_, prefix_ + std::string(name) + ".");
  }
  std::string name(std::string_view tensor) const { return prefix_ + std::string(tensor); }
  Weights& weights() const { return *weights_; }
  const LoadOptions& options() const { return weights_->options(); }

 private:
  Weights* weights_;
  std::string prefix_;
};

}  // namespace tessera::model
