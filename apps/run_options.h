// The flags and arguments of `tessera run`, and the Request they make.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/request.h"

namespace tessera::apps {

class Verb;

struct SamplingOptions {
  SamplingParams params = {.temperature = 0.7f, .top_p = 0.95f};
  int64_t max_tokens = 256;
  int64_t min_tokens = 0;
  std::string seed = {};
  std::vector<std::string> stop = {};
  std::vector<std::string> stop_tokens = {};
  std::vector<std::string> logit_bias = {};
  int64_t num_outputs = 1;
  int64_t beam = 0;
  float length_penalty = 1.0f;
  int64_t num_logprobs = -1;
  bool ignores_eos = false;
};

// What the output must look like: at most one of these.
struct ConstraintOptions {
  std::string json_schema = {};  // the schema, or the name of its file
  bool is_json_object = false;
  std::string regex = {};
  std::vector<std::string> choices = {};
  std::string grammar_file = {};
  int64_t max_whitespace = 0;
};

void add_constraint_flags(const Verb& verb, ConstraintOptions& options);
// Compiled, so that mistakes are reported before a model is loaded; null if none was asked for.
std::shared_ptr<const Constraint> make_constraint(const ConstraintOptions& options);

void add_sampling_flags(const Verb& verb, SamplingOptions& options);

// A request without a prompt. Refuses text that cannot be parsed; the engine checks ranges.
Request make_request(const SamplingOptions& options);

// "42:-5.5" adds -5.5 to the logit of token 42.
std::optional<std::pair<int32_t, float>> parse_logit_bias(const std::string& text);

// Limits max_new_tokens to the rest of the context. Refuses a prompt that fills it.
void fit_to_context(Request& request, int64_t max_context);

// MODEL and PROMPT of `tessera run`. A single argument is the prompt for the default model if it
// has spaces and is not a folder, else a model.
struct RunArguments {
  std::string model;
  std::optional<std::string> prompt;
};
RunArguments read_run_arguments(const std::vector<std::string>& positionals);

}  // namespace tessera::apps
