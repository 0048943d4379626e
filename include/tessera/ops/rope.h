// Rotary position embedding, fused over q and k, and the table of angles it reads.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

enum class RopeStyle : uint8_t {
  half_split,   // rotates (x[i], x[i + rotary_dim / 2]): Llama, Mistral, Qwen as in Hugging Face
  interleaved,  // rotates (x[2i], x[2i + 1]): GPT-J, and Llama as Meta published it
};

enum class RopeScalingKind : uint8_t { none, linear, llama3, yarn };

// How a model was extended beyond its training length; names as in config.json.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1.0;                          // linear, llama3, yarn
  double low_freq_factor = 1.0;                 // llama3
  double high_freq_factor = 4.0;                // llama3
  int64_t original_max_positions = 0;           // llama3, yarn
  double beta_fast = 32.0;                      // yarn
  double beta_slow = 1.0;                       // yarn
  std::optional<double> attention_factor = {};  // yarn; 0.1 ln(factor) + 1 if not given
};

// Angle per position of each pair: rotary_dim / 2 values, in double.
std::vector<double> rope_frequencies(int64_t rotary_dim, double theta, const RopeScaling& scaling);

// A CPU tensor f32 [num_positions, rotary_dim]: cos of each pair's angle, then sin of each, times
// the attention factor. Computed in double and rounded once, so positions beyond 2^17 stay exact.
Tensor make_rope_table(int64_t num_positions, int64_t rotary_dim, double theta,
                       const RopeScaling& scaling = {});

// The same table on any device, with rows computed when they are first needed: a model of a million
// positions pays only for those it reaches. The rows have the same bits as those of
// make_rope_table.
class RopeTable {
 public:
  RopeTable() = default;
  // Allocates memory for all rows and computes none. On the CPU, pages that were never written are
  // not resident.
  RopeTable(int64_t num_positions, int64_t rotary_dim, double theta, const RopeScaling& scaling,
            Device device);

  // Makes rows [0, num_positions), or all if the table is shorter, available to later work on the
  // stream. Computes whole blocks of rows, so that most calls do nothing. Allocates nothing.
  void make_rows(int64_t num_positions, const Context& ctx = {});

  const TensorView& view() const { return table_.view(); }  // all rows, made or not
  int64_t num_made() const { return num_made_; }
  int64_t size_bytes() const { return table_.size_bytes(); }

 private:
  std::vector<double> frequencies_;  // [rotary_dim / 2]
  double factor_ = 1.0;              // of attention
  Tensor table_;                     // f32 [num_positions, rotary_dim]
  Tensor block_;                     // rows to be copied to a GPU; empty on the CPU
  int64_t num_made_ = 0;
};

// Rotates the first rotary_dim (the table's width) elements of every head in place. A position
// outside the table is refused on the CPU; on a GPU its token becomes NaN.
struct RopeArgs {
  TensorView q;                      // [tokens, num_heads, head_dim]; f32, f16, bf16; updated
  std::optional<TensorView> k = {};  // [tokens, num_kv_heads, head_dim], otherwise as q
  TensorView positions;              // [tokens]; i32 or i64, contiguous
  TensorView table;                  // f32 [num_positions, rotary_dim], contiguous: make_rope_table
  RopeStyle style = RopeStyle::half_split;
};

void rope(const RopeArgs& args, const Context& ctx = {});
bool supports(const RopeArgs& args, const Context& ctx = {});

}  // namespace tessera
