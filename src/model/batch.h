// What one forward pass reads: a value of views, nothing else.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// Tokens of all sequences one after the other. The first num_decodes sequences have one token
// each; the rest are chunks of prompts. All views are i32 on the model's device.
struct Batch {
  TensorView tokens;        // [tokens]
  TensorView positions;     // [tokens]
  TensorView slots;         // [tokens]: page * page_size + row, where keys and values go
  TensorView page_table;    // [batch, max_pages]
  TensorView seq_lens;      // [batch]: after this step
  TensorView query_starts;  // [batch + 1]: the first token of each sequence, and num_tokens()
  TensorView chunk_starts;  // [batch - num_decodes + 1]: the same for the chunks, from 0
  TensorView logit_rows;    // [num_logits]: the tokens whose logits are wanted, ascending
  int64_t num_decodes = 0;

  int64_t num_tokens() const { return tokens.size(0); }
  int64_t batch() const { return seq_lens.size(0); }
};

// The same on the host, as the engine fills it. What it keeps from step to step is memory only.
struct HostBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;
  std::vector<int32_t> page_table;  // [batch, max_pages]
  std::vector<int32_t> seq_lens;
  std::vector<int32_t> query_starts;
  std::vector<int32_t> logit_rows;
  int64_t max_pages = 0;
  int64_t num_decodes = 0;

  void clear();
};

// The most one step may hold; buffers are sized by it once.
struct BatchLimits {
  int64_t tokens = 0;
  int64_t batch = 0;
  int64_t max_pages = 0;  // of one sequence
  int64_t logits = 0;
  int64_t max_positions =
      0;  // of one sequence: the model's table of angles; 0: all it was made for
};

// Device memory for a Batch, filled from a HostBatch by one copy and with nothing allocated.
class BatchBuffers {
 public:
  BatchBuffers(const BatchLimits& limits, Device device);
  // Refuses what is beyond the limits or disagrees with itself. The views stay good until the next
  // upload, which waits on nothing: it is ordered on the stream.
  Batch upload(const HostBatch& host, const Context& ctx);

 private:
  // The next part of the staging memory, filled with `values`, as a view of the device's.
  TensorView stage(std::span<const int32_t> values, std::initializer_list<int64_t> shape);

  BatchLimits limits_;
  Tensor memory_;                 // i32: all parts one after the other
  std::vector<int32_t> staging_;  // the same on the host
  int64_t used_ = 0;
};

}  // namespace tessera::model
