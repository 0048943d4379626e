// From tensors as a checkpoint has them to weights as the forward pass reads them: fused, cut to
// this rank's share, converted or quantised, and moved to the device.
// SPDX-License-Identifier: MIT
#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "core/text.h"
#include "model/weight_source.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/quantize.h"

namespace tessera::model {
namespace {

// A block is converted by one thread; large enough that starting it costs nothing.
constexpr int64_t kBlockElements = 1 << 18;

// The rows [row, row + num_rows) and columns [col, col + num_cols) of a tensor: one rank's part.
struct Part {
  TensorSpec spec;
  int64_t row = 0;
  int64_t num_rows = 0;
  int64_t col = 0;
  int64_t num_cols = 0;
};

bool is_finite(float value) { return std::isfinite(value); }
bool is_finite(F16 value) { return (value.bits & 0x7c00u) != 0x7c00u; }
bool is_finite(Bf16 value) { return (value.bits & 0x7f80u) != 0x7f80u; }

template <class T>
int64_t first_not_finite(const TensorView& values) {
  const T* data = values.as<T>();
  const T* end = data + values.num_elements();
  const T* found = std::find_if(data, end, [](T value) { return !is_finite(value); });
  return found == end ? -1 : found - data;
}

// The place in a contiguous block, or -1.
int64_t find_not_finite(const TensorView& values) {
  if (values.dtype == DType::f16) return first_not_finite<F16>(values);
  if (values.dtype == DType::bf16) return first_not_finite<Bf16>(values);
  return first_not_finite<float>(values);
}

class Assembler {
 public:
  Assembler(const WeightSource& source, const ModelConfig& config, const LoadOptions& options)
      : source_(source), config_(config), options_(options) {
    // Two bytes an element serves for a progress bar; what is stored may be wider.
    total_bytes_ = 2 * config.num_parameters() / options.num_ranks;
  }

  LlamaWeights assemble() {
    LlamaWeights weights;
    weights.embedding = plain({whole(embedding_spec(config_))});
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      weights.layers.push_back(layer_weights(layer));
    }
    weights.final_norm = plain({whole(final_norm_spec(config_))});
    if (!config_.has_tied_embeddings || options_.format != WeightFormat::plain) {
      weights.head = linear({rows_of_rank(head_spec(config_))}, {});
    }
    report(total_bytes_ - done_bytes_);
    return weights;
  }

 private:
  LayerWeights layer_weights(int64_t layer) {
    const auto spec = [&](std::string_view name) { return layer_spec(config_, layer, name); };
    const auto rows = [&](std::string_view name) { return rows_of_rank(spec(name)); };
    std::vector<Part> qkv_bias, output_bias, gate_up_bias, down_bias;
    if (config_.has_qkv_bias) {
      qkv_bias = {rows("self_attn.q_proj.bias"), rows("self_attn.k_proj.bias"),
                  rows("self_attn.v_proj.bias")};
    }
    // A sum over ranks takes its bias once.
    const bool is_first = options_.rank == 0;
    if (config_.has_output_bias && is_first) output_bias = {whole(spec("self_attn.o_proj.bias"))};
    if (config_.has_mlp_bias) {
      gate_up_bias = {rows("mlp.gate_proj.bias"), rows("mlp.up_proj.bias")};
      if (is_first) down_bias = {whole(spec("mlp.down_proj.bias"))};
    }
    LayerWeights result;
    result.attention_norm = plain({whole(spec("input_layernorm.weight"))});
    result.qkv = linear({rows("self_attn.q_proj.weight"), rows("self_attn.k_proj.weight"),
                         rows("self_attn.v_proj.weight")},
                        qkv_bias);
    result.output = linear({cols_of_rank(spec("self_attn.o_proj.weight"))}, output_bias);
    result.mlp_norm = plain({whole(spec("post_attention_layernorm.weight"))});
    result.gate_up =
        linear({rows("mlp.gate_proj.weight"), rows("mlp.up_proj.weight")}, gate_up_bias);
    result.down = linear({cols_of_rank(spec("mlp.down_proj.weight"))}, down_bias);
    return result;
  }

  Part whole(TensorSpec spec) const {
    return {.spec = spec, .num_rows = spec.num_rows, .num_cols = spec.num_cols};
  }
  Part rows_of_rank(TensorSpec spec) const {
    Part part = whole(std::move(spec));
    part.num_rows /= options_.num_ranks;
    part.row = part.num_rows * options_.rank;
    return part;
  }
  Part cols_of_rank(TensorSpec spec) const {
    Part part = whole(std::move(spec));
    part.num_cols /= options_.num_ranks;
    part.col = part.num_cols * options_.rank;
    return part;
  }

  // The parts below each other, in the model's dtype.
  Tensor plain(const std::vector<Part>& parts) {
    int64_t num_rows = 0;
    for (const Part& part : parts) num_rows += part.num_rows;
    const int64_t num_cols = parts.front().num_cols;
    Tensor result = parts.front().spec.is_vector ? Tensor(options_.dtype, {num_rows})
                                                 : Tensor(options_.dtype, {num_rows, num_cols});
    const TensorView matrix =
        TensorView::contiguous(result.view().data, options_.dtype, {num_rows, num_cols});
    int64_t begin = 0;
    for (const Part& part : parts) {
      for_each_block(part, [&](int64_t row, int64_t count) {
        read_block(part, row, matrix.slice(0, begin + row, begin + row + count));
      });
      begin += part.num_rows;
    }
    return on_device(std::move(result));
  }

  Linear linear(const std::vector<Part>& parts, const std::vector<Part>& bias_parts) {
    Linear result;
    if (!bias_parts.empty()) result.bias = plain(bias_parts);
    if (options_.format == WeightFormat::plain) {
      result.weight = plain(parts);
    } else {
      quantize_parts(parts, result);
    }
    return result;
  }

  // Codes come from the values as stored, not from values rounded to the model's dtype.
  void quantize_parts(const std::vector<Part>& parts, Linear& result) {
    int64_t num_rows = 0;
    for (const Part& part : parts) num_rows += part.num_rows;
    const int64_t num_cols = parts.front().num_cols;
    Tensor codes(DType::i8, {num_rows, num_cols});
    Tensor scale(DType::f32, {num_rows});
    int64_t begin = 0;
    for (const Part& part : parts) {
      for_each_block(part, [&](int64_t row, int64_t count) {
        const Tensor values(source_.dtype_of(part.spec), {count, num_cols});
        read_block(part, row, values);
        const int64_t first = begin + row;
        const TensorView scales =
            TensorView::contiguous(scale.view().as<float>() + first, DType::f32, {count, 1});
        quantize(
            {.x = values, .out = codes.view().slice(0, first, first + count), .scale = scales});
        // Codes cannot show what is not finite, so it is refused here, asked for or not. The scales
        // tell: that of a row with such a value is NaN.
        if (find_not_finite(scales) >= 0) check_finite(part, row, values);
      });
      begin += part.num_rows;
    }
    result.weight = on_device(std::move(codes));
    result.scale = on_device(std::move(scale));
  }

  // Calls body(row, count) for blocks of a part's rows, on all threads.
  template <class Body>
  void for_each_block(const Part& part, Body&& body) {
    const int64_t block_rows =
        std::clamp<int64_t>(kBlockElements / std::max<int64_t>(part.num_cols, 1), 1, part.num_rows);
    const int64_t num_blocks = (part.num_rows + block_rows - 1) / block_rows;
    not_finite_ = -1;
    parallel_tasks(num_blocks, [&](int64_t block) {
      const int64_t row = block * block_rows;
      body(row, std::min(block_rows, part.num_rows - row));
    });
    if (not_finite_ >= 0) refuse_not_finite(part);
    report(2 * part.num_rows * part.num_cols);
  }

  void read_block(const Part& part, int64_t row, const TensorView& to) {
    source_.read(part.spec, part.row + row, part.col, to);
    if (options_.check_values) check_finite(part, row, to);
  }

  // Notes the first value of a block that is not finite; `row` is the block's first.
  void check_finite(const Part& part, int64_t row, const TensorView& values) {
    const int64_t found = find_not_finite(values);
    if (found < 0) return;
    const int64_t place = row * part.num_cols + found;
    // The first of all blocks, so that the message does not depend on threads.
    int64_t known = not_finite_;
    while ((known < 0 || place < known) && !not_finite_.compare_exchange_weak(known, place)) {
    }
  }

  [[noreturn]] void refuse_not_finite(const Part& part) {
    const int64_t row = part.row + not_finite_ / part.num_cols;
    const int64_t col = part.col + not_finite_ % part.num_cols;
    const Tensor value(DType::f32, {1, 1});
    source_.read(part.spec, row, col, value);
    const float stored = *value.view().as<float>();
    const std::string place =
        part.spec.is_vector ? concat("[", row, "]") : concat("[", row, ", ", col, "]");
    const std::string why = std::isfinite(stored)
                                ? concat("beyond the range of ", name(options_.dtype),
                                         "; load the model as bf16 or f32")
                                : std::string("not finite; the checkpoint is damaged");
    fail(concat("checkpoint: tensor '", part.spec.name, "' holds ", stored, " at ", place,
                ", which is ", why));
  }

  Tensor on_device(Tensor tensor) const {
    return options_.device.is_cpu() ? std::move(tensor) : tensor.to(options_.device);
  }

  void report(int64_t num_bytes) {
    done_bytes_ += num_bytes;
    if (options_.on_progress) {
      options_.on_progress(std::min(done_bytes_, total_bytes_), total_bytes_);
    }
  }

  const WeightSource& source_;
  const ModelConfig& config_;
  const LoadOptions& options_;
  std::atomic<int64_t> not_finite_ = -1;  // in the part being read: row * num_cols + col
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

void check_options(const ModelConfig& config, const LoadOptions& options) {
  if (!is_float16_or_32(options.dtype)) {
    fail(concat("load_weights: dtype is ", name(options.dtype), "; it must be f32, f16 or bf16"));
  }
  const int64_t ranks = options.num_ranks;
  if (ranks < 1 || options.rank < 0 || options.rank >= ranks) {
    fail(concat("load_weights: rank is ", options.rank, " of ", ranks, " ranks"));
  }
  const std::pair<std::string_view, int64_t> divided[] = {{"num_heads", config.num_heads},
                                                          {"num_kv_heads", config.num_kv_heads},
                                                          {"inter", config.inter},
                                                          {"vocab", config.vocab}};
  for (const auto& [what, size] : divided) {
    if (size % ranks == 0) continue;
    fail(concat("load_weights: ", what, " is ", size, " and cannot be shared by ", ranks,
                " ranks; use a number of ranks that divides it"));
  }
}

int64_t bytes_of(const Linear& linear) {
  return linear.weight.size_bytes() + linear.scale.size_bytes() + linear.bias.size_bytes();
}

}  // namespace

int64_t LlamaWeights::size_bytes() const {
  int64_t total = embedding.size_bytes() + final_norm.size_bytes() + bytes_of(head);
  for (const LayerWeights& layer : layers) {
    total += layer.attention_norm.size_bytes() + layer.mlp_norm.size_bytes();
    total += bytes_of(layer.qkv) + bytes_of(layer.output);
    total += bytes_of(layer.gate_up) + bytes_of(layer.down);
  }
  return total;
}

LlamaWeights load_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                          const LoadOptions& options) {
  check_options(config, options);
  const auto source = make_stored_source(checkpoint, config);
  return Assembler(*source, config, options).assemble();
}

LlamaWeights make_random_weights(const ModelConfig& config, const LoadOptions& options,
                                 uint64_t seed) {
  check_options(config, options);
  const auto source = make_random_source(seed);
  return Assembler(*source, config, options).assemble();
}

}  // namespace tessera::model
