// What the rows of a step sample, and what comes of it.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/count_slots.h"
#include "engine/sequence.h"
#include "model/sampling.h"
#include "tessera/engine/engine.h"

namespace tessera::engine {

// How the request draws the token at this position of its sequence number `sequence`, apart from
// penalties and biases.
model::DrawSettings draw_settings(const ActiveRequest& active, int32_t sequence, int64_t position);

// Between requests and the numbers that the device works with. A row whose logits are not finite
// gets an error of its own; the other rows are not affected.
class Sampler {
 public:
  Sampler(int64_t vocab, int64_t max_batch);

  // Fills in what the rows sample, except for masks. Sequences with penalties get a list of the
  // tokens they have seen before their first draw; the device then keeps it.
  void describe(std::span<const BatchRow> rows, model::HostSampling& sampling);
  // Adds the masks of rows with a constraint, once all tokens before theirs are known.
  void add_masks(std::span<const BatchRow> rows, model::HostSampling& sampling);
  // One result for each row, valid until the next call.
  std::span<RowResult> read(std::span<const BatchRow> rows, const model::SampledStep& step);
  void add_metrics(EngineMetrics& metrics) const;

 private:
  void add_draw(const BatchRow& row, int32_t number, model::HostSampling& sampling);
  void add_biases(const BatchRow& row, model::HostSampling& sampling);
  int32_t add_mask(const BatchRow& row, model::HostSampling& sampling);
  int32_t list_of(const BatchRow& row, model::HostSampling& sampling);
  void read_draws(const BatchRow& row, const model::SampledStep& step, RowResult& result) const;
  void read_states(std::span<const BatchRow> rows, const model::SampledStep& step);
  void read_scores(const BatchRow& row, const model::SampledStep& step, RowResult& result) const;

  int64_t vocab_;
  int64_t num_masks_ = 0;
  double mask_seconds_ = 0;
  grammar::Progress guessed_;  // after the guesses of the draft that is being described
  FreeSlots free_slots_;
  std::vector<CountSlot> passing_slots_;           // of draws for sequences that do not exist yet
  std::vector<std::pair<int32_t, float>> biases_;  // of one draw, by token
  std::vector<RowResult> results_;                 // [max_batch]
};

}  // namespace tessera::engine
