// What all models share: loading, the memory of a step, and dry runs.
// SPDX-License-Identifier: MIT
#include "model/model.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "model/chunk_plan.h"
#include "model/family.h"
#include "model/formats/kv_scales.h"
#include "tessera/core/error.h"

namespace tessera::model {
namespace {

// A batch for a dry run: views of the right shapes at made-up addresses. Either one generated token
// for each of `batch` sequences, or one chunk of a prompt.
class DryBatch {
 public:
  DryBatch(const BatchLimits& limits, Device device, bool is_decode)
      : pool_(device, DryRegion::batch) {
    const int64_t size = is_decode ? std::min(limits.batch, limits.tokens) : 1;
    const int64_t num_tokens = is_decode ? size : limits.tokens;
    const auto ints = [&](int64_t count) { return pool_.make(DType::i32, {count}); };
    batch_.tokens = ints(num_tokens);
    batch_.positions = ints(num_tokens);
    batch_.slots = ints(num_tokens);
    batch_.page_table = pool_.make(DType::i32, {size, limits.max_pages});
    batch_.seq_lens = ints(size);
    batch_.query_starts = ints(size + 1);
    batch_.num_decodes = is_decode ? size : 0;
    batch_.chunk_starts = ints(size - batch_.num_decodes + 1);
    batch_.logit_rows = ints(is_decode ? std::min(limits.logits, size) : limits.logits);
    if (limits.kv_type == KvFormat::plain) return;
    const int64_t num_chunks = size - batch_.num_decodes;
    passes_ = {{.num_sequences = 1,
                .num_tokens = num_tokens,
                .gather_starts = ints(1),
                .q_starts = ints(2),
                .kv_lens = ints(1),
                .k_table = pool_.make(DType::i32, {1, limits.max_pages}),
                .v_table = pool_.make(DType::i32, {1, limits.max_pages})}};
    if (num_chunks > 0) batch_.passes = passes_;
    if (!has_tails(limits.kv_type)) return;
    batch_.tails = ints(size);
    batch_.tail_slots = ints(num_tokens);
    batch_.tail_lens = ints(num_chunks);
    batch_.exact_starts = ints(num_chunks);
    batch_.exact_slots = ints(num_tokens);
  }
  const Batch& batch() const { return batch_; }

 private:
  TensorPool pool_;
  std::vector<ChunkPass> passes_;
  Batch batch_;
};

// Stands for a communicator in a dry run: nothing is exchanged.
class DryCommunicator final : public dist::Communicator {
 public:
  explicit DryCommunicator(const dist::Communicator& of) : of_(of) {}
  int rank() const override { return of_.rank(); }
  int size() const override { return of_.size(); }
  void all_reduce_sum(const TensorView&, const Context&) override {}
  void all_gather_columns(const TensorView&, const TensorView&, const Context&) override {}

 private:
  const dist::Communicator& of_;
};

// Values for a GPU pass through staging buffers; codes are made whole on the host, by blocks.
int64_t loading_bytes(const LoadOptions& options, const Weights& dry) {
  if (options.device.is_cpu()) return 0;
  const bool has_codes = is_quantizing(options.format) || options.formats != nullptr;
  return carrier_bytes() + (has_codes ? 2 * dry.largest_bytes() : 0);
}

LoadOptions with_formats(const LoadOptions& options, const ModelConfig& config) {
  LoadOptions with = options;
  with.formats = config.formats;
  return with;
}

}  // namespace

int64_t Model::num_kv_heads() const { return config_.num_kv_heads / weights_.options().num_ranks; }

void Model::prepare(const BatchLimits& limits, dist::Communicator& communicator) {
  const LoadOptions& options = weights_.options();
  if (communicator.rank() != options.rank || communicator.size() != options.num_ranks) {
    fail(concat("Model: the weights are those of rank ", options.rank, " of ", options.num_ranks,
                " and the communicator is rank ", communicator.rank(), " of ", communicator.size(),
                "; load them with the communicator's rank and size"));
  }
  limits_ = limits;
  communicator_ = &communicator;
  memory_ = TensorPool(options.device, weights_.is_dry() ? DryRegion::tables : DryRegion::none);
  const int64_t num_positions =
      limits.max_positions > 0 ? limits.max_positions : config_.max_positions;
  if (memory_.is_dry()) {
    dry_angles_ = memory_.make(DType::f32, {num_positions, config_.head_dim});
  } else {
    angles_ = RopeTable(num_positions, config_.head_dim, config_.rope_theta, config_.rope_scaling,
                        options.device);
  }
  const ScratchSizes scratch = scratch_sizes(limits);
  for (TensorView* pages : {&chunk_k_, &chunk_v_}) {
    *pages = {};
    if (scratch.num_pages() == 0) continue;
    // Attention may read rows beyond a sequence, with no weight: they must be finite.
    *pages = memory_.make_zeros(
        dtype(), {scratch.num_pages(), scratch.page_size, num_kv_heads(), config_.head_dim});
  }
  DryRun ignored;
  activations_ = memory_.make(DType::u8, {rehearse(kKvGroup, ignored)});
}

int64_t Model::rehearse(int64_t page_size, DryRun& dry_run) const {
  KvMemory kv = KvMemory::dry(config_, num_kv_heads(),
                              {.num_pages = limits_.max_pages,
                               .page_size = page_size,
                               .dtype = dtype(),
                               .type = limits_.kv_type,
                               .num_tails = has_tails(limits_.kv_type) ? limits_.batch : 0},
                              device());
  const Context ctx{.batch_invariant = true, .dry_run = &dry_run};
  DryCommunicator communicator(*communicator_);
  int64_t peak = 0;
  for (const bool is_decode : {true, false}) {
    const DryBatch made(limits_, device(), is_decode);
    Arena arena(device());
    Step step{made.batch(), kv,       arena,    communicator, ctx,
              dtype(),      angles(), chunk_k_, chunk_v_,     limits_.is_fused};
    run(step);
    peak = std::max(peak, arena.peak_bytes());
  }
  return peak;
}

std::string Model::find_refusal(int64_t page_size) const {
  DryRun dry_run;
  rehearse(page_size, dry_run);
  return dry_run.refusals.empty() ? std::string() : dry_run.refusals.front();
}

void Model::check(const Batch& batch, const KvMemory& kv) const {
  expects(communicator_ != nullptr, "Model: call prepare before forward");
  if (batch.num_tokens() > limits_.tokens || batch.logit_rows.size(0) > limits_.logits) {
    fail(concat("Model: a step of ", batch.num_tokens(), " tokens and ", batch.logit_rows.size(0),
                " logits; this model was prepared for ", limits_.tokens, " and ", limits_.logits));
  }
  if (batch.num_decodes > batch.batch() || batch.num_decodes > batch.num_tokens()) {
    fail(concat("Model: num_decodes is ", batch.num_decodes, " in a batch of ", batch.batch()));
  }
  if (kv.num_kv_heads() != num_kv_heads() || kv.dtype() != dtype() ||
      kv.type() != limits_.kv_type) {
    fail(concat("Model: the KV cache has ", kv.num_kv_heads(), " heads, ", name(kv.type()), " of ",
                name(kv.dtype()), "; this rank was made for ", num_kv_heads(), ", ",
                name(limits_.kv_type), " of ", name(dtype())));
  }
}

TensorView Model::forward(const Batch& batch, KvMemory& kv, const Context& ctx) {
  check(batch, kv);
  Arena arena(activations_);
  if (batch.num_tokens() == 0) return arena.take(DType::f32, 0, config_.vocab);
  make_angles(batch.num_positions, ctx);
  Step step{batch,   kv,       arena,    *communicator_, ctx,
            dtype(), angles(), chunk_k_, chunk_v_,       limits_.is_fused};
  const TensorView logits = run(step);
  states_ = step.states;
  return logits;
}

void Model::forward_block(int64_t layer, const TensorView& hidden, const Batch& batch, KvMemory& kv,
                          const Context& ctx) {
  check(batch, kv);
  Arena arena(activations_);
  make_angles(batch.num_positions, ctx);
  Step step{batch,   kv,       arena,    *communicator_, ctx,
            dtype(), angles(), chunk_k_, chunk_v_,       limits_.is_fused};
  Stream stream{.hidden = hidden, .block = step.take(config_.hidden)};
  run_block(layer, stream, step);
  if (stream.is_pending) stream.add(1.0f, step);
}

std::unique_ptr<Model> make_model(const ModelConfig& config, Weights weights) {
  std::unique_ptr<Model> model = family_of(config).make(config, weights);
  weights.finish();
  model->weights_ = std::move(weights);
  return model;
}

std::unique_ptr<Model> make_dry_model(const ModelConfig& config, const LoadOptions& options) {
  LoadOptions quiet = with_formats(options, config);
  quiet.on_progress = {};
  return make_model(config, Weights(quiet));
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const ModelConfig& config,
                                  const LoadOptions& options) {
  const std::unique_ptr<Model> dry = make_dry_model(config, options);
  const auto source = make_stored_source(checkpoint, config, dry->weights().specs());
  auto model = make_model(config, Weights(with_formats(options, config), *source, dry->weights()));
  model->kv_scales_ = read_kv_scales(checkpoint, config.num_layers);
  return model;
}

std::unique_ptr<Model> make_random_model(const ModelConfig& config, const LoadOptions& options,
                                         uint64_t seed) {
  expects(config.formats == nullptr, "make_random_model: random weights are values, not codes");
  const std::unique_ptr<Model> dry = make_dry_model(config, options);
  const auto source = make_random_source(seed);
  return make_model(config, Weights(options, *source, dry->weights()));
}

ModelNeeds measure_model(const ModelConfig& config, const LoadOptions& options,
                         const BatchLimits& limits) {
  const std::unique_ptr<Model> dry = make_dry_model(config, options);
  dist::LocalCommunicator local;
  dry->prepare(limits, local);
  return {.weights = dry->weight_bytes(),
          .host = loading_bytes(dry->weights().options(), dry->weights()),
          .activations = dry->activation_bytes()};
}

int64_t weight_bytes(const ModelConfig& config, DType dtype, WeightFormat format, Device device) {
  return make_dry_model(config, {.dtype = dtype, .format = format, .device = device})
      ->weight_bytes();
}

int64_t ModelConfig::num_parameters() const {
  return make_dry_model(*this, {})->weights().num_parameters();
}

std::string find_missing_operation(const ModelConfig& config, const LoadOptions& options,
                                   KvFormat kv_type, int64_t page_size) {
  constexpr int64_t kTokens = 16, kPages = 4;
  const std::unique_ptr<Model> dry = make_dry_model(config, options);
  dist::LocalCommunicator local;
  dry->prepare({.tokens = kTokens,
                .batch = kTokens,
                .max_pages = kPages,
                .logits = kTokens,
                .max_positions = kPages * page_size,
                .kv_type = kv_type},
               local);
  return dry->find_refusal(page_size);
}

}  // namespace tessera::model
