// Flags and arguments of `tessera run` to a Request.
// SPDX-License-Identifier: MIT
#include "apps/run_options.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>

#include "apps/options.h"
#include "apps/text_file.h"
#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
namespace {

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

int32_t narrow(int64_t value, const char* flag) {
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    throw UsageError(concat(flag, " is ", value, ", which is far too large"));
  }
  return static_cast<int32_t>(value);
}

}  // namespace

void add_sampling_flags(const Verb& verb, SamplingOptions& options) {
  SamplingParams& params = options.params;
  FlagSet main(verb, "Sampling");
  main.quantity("-n,--max-tokens", options.max_tokens, "N", "Most tokens to generate");
  main.value("-t,--temperature", params.temperature, "X", "0: always the most probable token");
  main.value("--top-k", params.top_k, "N", "Keep the N most probable; 0: all");
  main.value("--top-p", params.top_p, "X", "Keep the fewest that reach probability X");
  main.value("--seed", options.seed, "N", "The same seed gives the same text; 0 to 2^64-1");
  main.list("--stop", options.stop, "TEXT", "End at this text; may be repeated");
  FlagSet more(verb, "Advanced sampling");
  more.value("--min-p", params.min_p, "X", "Keep tokens of at least X times the best one's chance");
  more.value("--typical-p", params.typical_p, "X", "Keep the nearest to the entropy that reach X");
  more.value("--repetition-penalty", params.repetition_penalty, "X", "Shrink what was seen, by X");
  more.value("--presence-penalty", params.presence_penalty, "X", "Off tokens generated already");
  more.value("--frequency-penalty", params.frequency_penalty, "X", "Off them, for each time");
  more.list("--logit-bias", options.logit_bias, "ID:X",
            "Add X to a token's logit; may be repeated");
  more.list("--stop-token", options.stop_tokens, "ID", "End at this token; may be repeated");
  more.quantity("--min-tokens", options.min_tokens, "N", "No end before this many");
  more.toggle("--ignore-eos", options.ignores_eos, "Go on past the end of text");
  more.quantity("--num-outputs", options.num_outputs, "N", "Answers to one prompt");
  more.quantity("--beam", options.beam, "N", "Beam search of this width, instead of sampling");
  more.value("--length-penalty", options.length_penalty, "X", "Beams score logprob / length^X");
  more.value("--logprobs", options.num_logprobs, "N", "With --json: logprobs, N alternatives each");
}

void add_constraint_flags(const Verb& verb, ConstraintOptions& options) {
  FlagSet flags(verb, "Structured output");
  flags.value("--json-schema", options.json_schema, "FILE|TEXT",
              "Generate JSON that this schema accepts");
  flags.value("--regex", options.regex, "PATTERN", "Generate what this expression matches");
  flags.list("--choice", options.choices, "TEXT", "Generate one of these; may be repeated");
  FlagSet more(verb, "Advanced structured output");
  more.toggle("--json-object", options.is_json_object, "Generate any JSON object");
  more.value("--grammar", options.grammar_file, "FILE", "Generate what this EBNF describes");
  more.quantity("--json-whitespace", options.max_whitespace, "N",
                "Most blanks between two tokens of JSON; 0: compact");
}

std::shared_ptr<const Constraint> make_constraint(const ConstraintOptions& options) {
  std::vector<ConstraintSpec> given;
  if (!options.json_schema.empty()) {
    const bool is_text =
        options.json_schema.find_first_not_of(" \n\t\r") != std::string::npos &&
        options.json_schema[options.json_schema.find_first_not_of(" \n\t\r")] == '{';
    given.push_back({.kind = ConstraintKind::json_schema,
                     .text = is_text ? options.json_schema : read_text_file(options.json_schema),
                     .max_whitespace = narrow(options.max_whitespace, "--json-whitespace")});
  }
  if (options.is_json_object) {
    given.push_back({.kind = ConstraintKind::json_object,
                     .max_whitespace = narrow(options.max_whitespace, "--json-whitespace")});
  }
  if (!options.regex.empty())
    given.push_back({.kind = ConstraintKind::regex, .text = options.regex});
  if (!options.choices.empty()) {
    given.push_back({.kind = ConstraintKind::choice, .choices = options.choices});
  }
  if (!options.grammar_file.empty()) {
    given.push_back(
        {.kind = ConstraintKind::grammar, .text = read_text_file(options.grammar_file)});
  }
  if (given.empty()) return nullptr;
  if (given.size() > 1) {
    throw UsageError(
        "give one of --json-schema, --json-object, --regex, --choice and --grammar, not several");
  }
  try {
    return Constraint::compile(given.front());
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

std::optional<std::pair<int32_t, float>> parse_logit_bias(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto token = parse_number<int32_t>(std::string_view(text).substr(0, colon));
  const auto bias = parse_number<float>(std::string_view(text).substr(colon + 1));
  if (!token || !bias) return std::nullopt;
  return std::pair(*token, *bias);
}

Request make_request(const SamplingOptions& options) {
  Request request;
  request.sampling = options.params;
  if (!options.seed.empty()) {
    const auto seed = parse_number<uint64_t>(options.seed);
    if (!seed) {
      throw UsageError(
          concat("--seed is '", options.seed, "'; it must be a number from 0 to 2^64-1"));
    }
    request.sampling.seed = *seed;
  }
  for (const std::string& text : options.logit_bias) {
    const auto bias = parse_logit_bias(text);
    if (!bias) throw UsageError(concat("--logit-bias is '", text, "'; write ID:X, such as 42:-5"));
    request.sampling.logit_bias.push_back(*bias);
  }
  for (const std::string& text : options.stop_tokens) {
    const auto token = parse_number<int32_t>(text);
    if (!token) throw UsageError(concat("--stop-token is '", text, "'; it must be a token's id"));
    request.stop_tokens.push_back(*token);
  }
  request.max_new_tokens = options.max_tokens;
  request.min_new_tokens = options.min_tokens;
  request.stop = options.stop;
  request.ignores_eos = options.ignores_eos;
  request.num_outputs = narrow(options.num_outputs, "--num-outputs");
  request.beam_width = narrow(options.beam, "--beam");
  request.length_penalty = options.length_penalty;
  request.num_logprobs = narrow(options.num_logprobs, "--logprobs");
  return request;
}

void fit_to_context(Request& request, int64_t max_context) {
  const auto used = static_cast<int64_t>(request.prompt.size());
  if (used >= max_context) {
    throw Error(concat("the prompt has ", used, " tokens and the context ends at ", max_context,
                       "; shorten it, or raise --context where the model allows it"));
  }
  request.max_new_tokens = std::min(request.max_new_tokens, max_context - used);
  request.min_new_tokens = std::min(request.min_new_tokens, request.max_new_tokens);
}

RunArguments read_run_arguments(const std::vector<std::string>& positionals) {
  RunArguments read;
  if (positionals.empty()) return read;
  std::error_code ignored;
  if (positionals.size() > 1) {
    read.model = positionals[0];
    read.prompt = positionals[1];
  } else if (positionals[0].find_first_of(" \n\t") != std::string::npos &&
             !std::filesystem::exists(positionals[0], ignored)) {
    read.prompt = positionals[0];
  } else {
    read.model = positionals[0];
  }
  return read;
}

}  // namespace tessera::apps
