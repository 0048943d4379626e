// How a checkpoint stores the weights of its linear layers.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/formats/code_form.h"
#include "model/formats/name_pattern.h"
#include "tessera/core/dtype.h"

namespace tessera::model {

class Checkpoint;
class Fields;

enum class Storage : uint8_t {
  values,   // F32, F16 or BF16
  gptq,     // words along k, zero points less 1
  gptq_v2,  // words along k
  awq,      // words along n, interleaved
  packed,   // words along k in rows: compressed-tensors
  bytes,    // a byte each, in rows: compressed-tensors and fp8
  nf4,      // bitsandbytes: nibbles that choose from a table
  mxfp4,    // bytes of two e2m1 along k in rows, scales of e8m0: compressed-tensors
  gguf,     // blocks along k
};

struct StoredFormat {
  Storage storage = Storage::values;
  DType codes = DType::f32;    // of `bytes`: i8 or e4m3
  int bits = 0;                // of words
  int64_t group = 0;           // elements of k per scale; 0: all
  int64_t rows_per_scale = 1;  // 0: one scale for the tensor
  bool has_zero_points = false;
  bool has_order = false;              // the columns of a group may be apart (act-order)
  std::string_view scale_suffix = {};  // of `bytes`: "weight_scale" or "weight_scale_inv"
  int block_type = 0;                  // of `gguf`: the number of its type
  int64_t head_rows = 0;               // of `gguf`: rows of a head whose halves are interleaved
  bool takes_codes = false;      // the layer's inputs are meant to be quantised to `codes` as well
  bool has_input_scale = false;  // with one scale for all of them, in the checkpoint
  DType scale = DType::f32;      // the type of its scales, set by with_scale_types

  bool operator==(const StoredFormat&) const = default;
};

// The form that holds such a weight exactly, with k columns; none if only values do.
std::optional<CodeForm> form_of(const StoredFormat& format, int64_t k);
// "gptq, 4 bits, groups of 128, zero points"
std::string to_string(const StoredFormat& format);
// The last part of the name of the tensor that holds a layer's scales, such as "weight_scale";
// empty if no tensor holds them as floats.
std::string_view scale_name(const StoredFormat& format);

// The formats of all layers of a checkpoint. A layer is named without ".weight".
class StoredFormats {
 public:
  // What a quantization_config says; refuses, by name and with values, what cannot be loaded.
  static std::shared_ptr<const StoredFormats> parse(const Fields& config);

  // A copy in which every layer's format has the type of its scales, which the headers of the
  // checkpoint's files give.
  std::shared_ptr<const StoredFormats> with_scale_types(const Checkpoint& checkpoint) const;

  const StoredFormat& of(std::string_view layer) const;

  struct Rule {
    std::vector<NamePattern> targets;  // empty: every linear layer
    StoredFormat format;
  };
  std::string method;                                        // "gptq"
  std::map<std::string, StoredFormat, std::less<>> by_name;  // looked up first
  std::vector<NamePattern> kept;                             // layers that are stored as values
  std::vector<Rule> rules;                                   // the first that matches
  std::vector<std::string> notes = {};  // what the user should know, a sentence each
};

}  // namespace tessera::model
