// What one forward pass reads: a value of views, nothing else.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "tessera/core/context.h"
#include "tessera/core/host_buffer.h"
#include "tessera/core/tensor.h"
#include "tessera/ops/kv_format.h"

namespace tessera::model {

// Chunks of prompts whose cache is read back into scratch memory for attention, as many at once as
// that holds: one call of attention over pages of the scratch. chunk_plan.h says what lies where.
struct ChunkPass {
  int64_t first_sequence = 0;  // of the batch
  int64_t num_sequences = 0;
  int64_t first_token = 0;  // of the step
  int64_t num_tokens = 0;
  TensorView gather_starts = {};  // [num_sequences]: rows of the scratch where their tokens go
  // Attention runs over parts of the chunks: whole ones, or the tokens of one group of 32 each.
  TensorView q_starts = {};  // [parts + 1], from 0
  TensorView kv_lens = {};   // [parts]
  TensorView k_table = {};   // [parts, most pages of one]: pages of the scratch
  TensorView v_table = {};
};

// How large a step is, rounded up. Every part of the batch except `passes` lies at an address that
// depends on the class alone, and the page table's rows are `table_width` apart. A step captured as
// a CUDA graph can therefore be replayed for every later step of its class.
struct SizeClass {
  int64_t tokens = 0;
  int64_t batch = 0;
  int64_t table_width = 0;

  auto operator<=>(const SizeClass&) const = default;
};

// The class of a count: 1 to 8 are their own, larger ones are rounded up by less than a quarter
// (10, 12, 14, 16, 20, 24, ...). Never above `limit`.
int64_t round_up_to_class(int64_t count, int64_t limit);

// Tokens of all sequences one after the other. The first num_decodes sequences have one generated
// token each; the rest are chunks of prompts. All views are i32 on the model's device.
struct Batch {
  TensorView tokens;          // [tokens]; -1 - i stands for drawn[i]
  TensorView drawn;           // [any]: tokens drawn by the step before; rank 0: none
  TensorView positions;       // [tokens]
  TensorView slots;           // [tokens]: page * page_size + row, where keys and values go
  TensorView page_table;      // [batch, max_pages], rows size_class.table_width apart
  TensorView seq_lens;        // [batch]: after this step
  TensorView query_starts;    // [batch + 1]: the first token of each sequence, and num_tokens()
  TensorView chunk_starts;    // [batch - num_decodes + 1]: the same for the chunks, from 0
  TensorView logit_rows;      // [num_logits]: the tokens whose logits are wanted
  int64_t num_positions = 0;  // the largest of `positions`, and one
  int64_t num_decodes = 0;
  int64_t longest_decode = 0;  // at least the largest of their seq_lens
  bool shares_pages = false;   // some of them begin with the same page
  bool has_drafts = false;     // some are tokens of one sequence, the later of which see the others
  SizeClass size_class = {};
  bool wants_states = false;  // of all tokens, as Model::states
  // Where the cache is not plain:
  std::span<const ChunkPass> passes;  // over the chunks, in order
  // Where keys have tails:
  TensorView tails;         // [batch]
  TensorView tail_slots;    // [tokens]
  TensorView tail_lens;     // [chunks]: tokens of a chunk's first group that came before it
  TensorView exact_starts;  // [chunks]: the row of the scratch where that group's keys go
  TensorView exact_slots;   // [tokens]: rows of the scratch for keys as computed; -1 for decodes

  int64_t num_tokens() const { return tokens.size(0); }
  int64_t batch() const { return seq_lens.size(0); }
};

// The same on the host, as the engine fills it. What it keeps from step to step is memory only.
// Decodes of one sequence, which verify a draft, have the same row of pages.
struct HostBatch {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> slots;
  std::vector<int32_t> page_table;  // [batch, max_pages]
  std::vector<int32_t> seq_lens;
  std::vector<int32_t> query_starts;
  std::vector<int32_t> logit_rows;
  std::vector<int32_t> tails = {};  // [batch] where keys have tails
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
  KvFormat kv_type = KvFormat::plain;  // others need max_positions
  bool is_fused = false;               // as in Step
};

// The chunks of a step over a cache that is not plain, on the host. See chunk_plan.h.
struct ChunkPlan {
  struct Pass {
    ChunkPass counts;
    std::vector<int32_t> gather_starts;
    std::vector<int32_t> q_starts;
    std::vector<int32_t> kv_lens;
    std::vector<int32_t> k_table;
    std::vector<int32_t> v_table;
    int64_t width = 0;  // of the tables
  };
  std::vector<Pass> passes;  // the first num_passes count; memory is kept from step to step
  int64_t num_passes = 0;
  std::vector<int32_t> tail_lens;
  std::vector<int32_t> exact_starts;
  std::vector<int32_t> exact_slots;
};

// Of BatchBuffers' memory on the device; the host keeps as much.
int64_t batch_bytes(const BatchLimits& limits);

// Whether a batch has the sizes it was given, or those of its size class.
enum class Padding : uint8_t { none, to_class };

// Device memory for a Batch, filled from a HostBatch by one copy. Nothing is allocated per step.
class BatchBuffers {
 public:
  BatchBuffers(const BatchLimits& limits, Device device);
  // Refuses a batch that is beyond the limits or inconsistent. The copy is queued on the stream and
  // not waited for. The views are valid until the next upload on the same stream; the upload after
  // that must not begin before the stream has finished this copy.
  //
  // Padding::to_class is for batches of generated tokens alone. Sequences are added that have no
  // keys and store none, one row of logits each, the page table gets as wide as its
  // class, and longest_decode is rounded up to a class as well. Views then depend on the class
  // alone.
  Batch upload(const HostBatch& host, const Context& ctx, Padding padding = Padding::none);

 private:
  // Writes `values` to the next part of the staging memory and returns the device's view of it. The
  // part takes up `room` elements, whatever the number of values.
  TensorView stage(std::span<const int32_t> values, int64_t room,
                   std::initializer_list<int64_t> shape);
  TensorView stage_list(const std::vector<int32_t>& values, int64_t room);
  // The same, filled up with `rest` to the whole room if the batch is padded.
  TensorView stage_padded(const std::vector<int32_t>& values, int64_t room, int32_t rest);
  TensorView stage_table(const HostBatch& host, const SizeClass& size);
  void stage_chunk_starts(const HostBatch& host, Batch& batch);
  void stage_tails(const HostBatch& host, Batch& batch);
  void stage_passes(Batch& batch);
  void find_shared_pages(const HostBatch& host, Batch& batch);

  BatchLimits limits_;
  ChunkPlan plan_;
  std::vector<ChunkPass> passes_;
  std::vector<int64_t> by_pages_;  // the decodes, sorted by their pages
  Tensor memory_;                  // i32: the parts of the batch, laid out by its size class
  HostBuffer staging_[2];          // the same on the host, for steps in turn
  int32_t* staged_ = nullptr;      // the one of this step
  int64_t num_uploads_ = 0;
  bool is_padded_ = false;  // this step
  int64_t used_ = 0;        // elements of it that this step's parts take up
};

}  // namespace tessera::model
