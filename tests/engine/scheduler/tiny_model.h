// Engines over models small enough to run hundreds of steps in a test.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_impl.h"

namespace tessera::testing {

inline constexpr int64_t kTinyVocab = 96;
inline constexpr int64_t kTinyContext = 128;

// Two layers.
model::ModelConfig tiny_config(int64_t vocab = kTinyVocab);
// Random weights, always the same for a seed.
std::unique_ptr<model::Model> tiny_model(const model::ModelConfig& config, DType dtype = DType::f32,
                                         Device device = {}, uint64_t seed = 11);
// f32 on the CPU, pages of 4 tokens; the KV cache holds num_pages.
EngineOptions tiny_options(int64_t num_pages = 4 * kTinyContext / 4);
// An engine over this model, on one rank. Fills in the defaults of the options.
std::unique_ptr<engine::EngineImpl> engine_over(std::unique_ptr<model::Model> model,
                                                const EngineOptions& options,
                                                std::optional<Tokenizer> tokenizer = {},
                                                std::unique_ptr<model::Model> draft = nullptr);
std::unique_ptr<engine::EngineImpl> tiny_engine(const EngineOptions& options = tiny_options(),
                                                int64_t vocab = kTinyVocab);

// Draft models for tiny_model: one that is always right, one that sometimes is, with half its
// layers, and one with weights of its own.
enum class DraftKind : uint8_t { same, similar, other };
inline constexpr DraftKind kAllDraftKinds[] = {DraftKind::same, DraftKind::similar,
                                               DraftKind::other};
std::unique_ptr<model::Model> tiny_draft(DraftKind kind, const EngineOptions& options);
// The tiny engine with a draft model; sets Speculation::draft.
std::unique_ptr<engine::EngineImpl> drafting_engine(DraftKind kind, EngineOptions options);

// A model that answers token i with token i + 1, over a tokenizer whose token i spells pieces[i].
// The last token is the end of text.
std::unique_ptr<engine::EngineImpl> script_engine(std::vector<std::string> pieces,
                                                  EngineOptions options = tiny_options());

// The joined output of one sequence.
struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  FinishReason finish = FinishReason::none;
  std::string error;
  int64_t num_cached_tokens = 0;
  std::vector<float> prompt_logprobs;
  std::vector<float> embedding;
  float score = 0.0f;
};
using Outcomes = std::map<std::pair<RequestId, int32_t>, Outcome>;

// Adds the outputs of a step. Fails the test if a sequence has output after its end.
void collect(std::span<const SequenceOutput> news, Outcomes& outcomes);
// Steps until nothing is left, checking the pages after every step.
void run_all(engine::EngineImpl& engine, Outcomes& outcomes);
Outcome run_one(engine::EngineImpl& engine, Request request);
std::vector<int32_t> ids_of(std::span<const OutputToken> tokens);

}  // namespace tessera::testing
