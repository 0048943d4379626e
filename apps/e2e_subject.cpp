// Models from folders, and random ones in the shapes of known models.
// SPDX-License-Identifier: MIT
#include "apps/e2e_subject.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/model_options.h"
#include "apps/options.h"
#include "apps/output.h"
#include "core/text.h"
#include "engine/draft_setup.h"
#include "engine/make_engine.h"
#include "engine/memory_check.h"
#include "model/model.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

model::ModelConfig find_shape(const std::string& wanted) {
  if (std::optional<model::ModelConfig> preset = model::find_preset(wanted)) return *preset;
  std::string all;
  std::vector<std::string> names;
  for (const std::string_view name : model::preset_names()) {
    all += concat(all.empty() ? "" : ", ", name);
    names.emplace_back(name);
  }
  throw UsageError(
      concat("no shape '", wanted, "'", did_you_mean(wanted, names), "; there are ", all));
}

// Makes the model answer each token with the next of a cycle, so that texts repeat themselves. The
// layers add nothing, so a token's own embedding reaches the head, where it is the row of the token
// that follows. A head that is the embedding answers each token with itself: a cycle of 1. All
// products are computed as before. Refuses quantised weights.
void make_repeating(const model::Model& model, int64_t cycle) {
  const model::ModelConfig& config = model.config();
  const auto weight = [&](const std::string& name) {
    const TensorView values = model.weights().find(name).values;
    expects(values.data != nullptr, "bench e2e: --repeating needs plain weights");
    return values;
  };
  const auto bytes_of = [](const TensorView& values) {
    return values.num_elements() * bit_width(values.dtype) / 8;
  };
  const Device device = model.device();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const char* name : {".self_attn.o_proj.weight", ".mlp.down_proj.weight"}) {
      const TensorView values = weight(concat("model.layers.", layer, name));
      fill_bytes(values.data, device, 0, static_cast<size_t>(bytes_of(values)));
    }
  }
  if (config.has_tied_embeddings) return synchronize(device);
  const TensorView from = weight("model.embed_tokens.weight"), to = weight("lm_head.weight");
  const int64_t row_bytes = bytes_of(from) / config.vocab;
  const auto copy = [&](int64_t target, int64_t source, int64_t rows) {
    copy_bytes(to.as<char>() + target * row_bytes, device, from.as<char>() + source * row_bytes,
               device, static_cast<size_t>(rows * row_bytes));
  };
  if (cycle == 1) copy(0, 0, config.vocab);
  for (int64_t first = 0; first < config.vocab && cycle > 1; first += cycle) {
    const int64_t count = std::min(cycle, config.vocab - first);
    copy(first + 1, first, count - 1);
    copy(first, first + count - 1, 1);
  }
  synchronize(device);
}

// The cycle that a model and its draft agree on.
int64_t cycle_of(const Subject& subject) {
  constexpr int64_t kCycle = 16;
  const bool is_tied =
      subject.config.has_tied_embeddings || (subject.draft && subject.draft->has_tied_embeddings);
  return is_tied ? 1 : kCycle;
}

}  // namespace

Subject find_subject(const SubjectFlags& flags, const std::string& draft_folder) {
  if (flags.shape.empty()) {
    if (flags.is_repeating) throw UsageError("--repeating is for --shape; give one");
    if (!flags.draft_shape.empty()) {
      throw UsageError("--draft-shape is for --shape; for the model of a folder give --draft");
    }
    const std::filesystem::path folder = find_model(flags.folder);
    return {
        .name = folder.filename().string(), .folder = folder, .config = model::load_config(folder)};
  }
  if (!flags.folder.empty()) throw UsageError("--model and --shape were given; give one of them");
  if (!draft_folder.empty()) {
    throw UsageError("--draft is for the model of a folder; for --shape give --draft-shape");
  }
  Subject subject{
      .name = flags.shape, .config = find_shape(flags.shape), .is_repeating = flags.is_repeating};
  if (!flags.draft_shape.empty()) subject.draft = find_shape(flags.draft_shape);
  return subject;
}

std::unique_ptr<Engine> make_subject_engine(const Subject& subject, const EngineOptions& options,
                                            std::optional<Tokenizer> tokenizer) {
  if (!subject.folder.empty()) {
    return load_engine(engine::open_model(subject.folder, subject.config, options));
  }
  const bool has_draft = options.speculation == Speculation::draft;
  if (has_draft) {
    if (!subject.draft) throw UsageError("--speculate draft needs --draft-shape with --shape");
    engine::check_draft_vocab(subject.config, *subject.draft, options);
    engine::check_memory_of_both(subject.config, *subject.draft, options);
  } else {
    engine::check_memory(subject.config, options);
  }
  Progress progress("making weights");
  const model::LoadOptions load = {
      .dtype = options.dtype,
      .format = options.weights,
      .weight_group = options.weight_group,
      .activations = options.activations,
      .device = options.device,
      .on_progress = [&](int64_t done, int64_t total) { progress.show_bytes(done, total); }};
  const auto make = [&](const model::ModelConfig& config, uint64_t seed) {
    std::unique_ptr<model::Model> model = model::make_random_model(config, load, seed);
    if (subject.is_repeating) make_repeating(*model, cycle_of(subject));
    return model;
  };
  std::unique_ptr<model::Model> model = make(subject.config, 1), draft;
  if (has_draft) draft = make(*subject.draft, 2);
  return engine::make_engine(std::move(model), std::move(tokenizer), options,
                             std::make_unique<dist::LocalCommunicator>(), std::move(draft));
}

}  // namespace tessera::apps
