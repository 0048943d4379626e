// The requests of a soak test.
// SPDX-License-Identifier: MIT
#include "tests/engine/soak/mixture.h"

#include <algorithm>
#include <limits>

namespace tessera::soak {
namespace {

const std::vector<std::string> kTexts = {
    "The history of mathematics",
    "The history of the city of London begins",
    "The history of the city of Paris begins with a river, and",
    "In 1969, the first",
    "A list of numbers: one, two, three, four,",
    "The population of the town was",
    "She was born in a small village near the sea, where her father",
    "é ü 漢字 🙂 and",
};

SamplingParams make_sampling(Dice& dice) {
  SamplingParams sampling;
  sampling.temperature = dice.one_in(3) ? 0.0f : static_cast<float>(dice(1, 20)) / 10.0f;
  if (dice.one_in(2)) sampling.seed = static_cast<uint64_t>(dice(0, 1 << 20));
  if (dice.one_in(4)) sampling.top_k = static_cast<int32_t>(dice(1, 100));
  if (dice.one_in(4)) sampling.top_p = static_cast<float>(dice(1, 100)) / 100.0f;
  if (dice.one_in(6)) sampling.min_p = static_cast<float>(dice(0, 50)) / 100.0f;
  if (dice.one_in(8)) sampling.typical_p = static_cast<float>(dice(10, 100)) / 100.0f;
  if (dice.one_in(4)) sampling.repetition_penalty = static_cast<float>(dice(8, 20)) / 10.0f;
  if (dice.one_in(6)) sampling.presence_penalty = static_cast<float>(dice(-20, 20)) / 10.0f;
  if (dice.one_in(6)) sampling.frequency_penalty = static_cast<float>(dice(-20, 20)) / 10.0f;
  if (dice.one_in(8)) {
    sampling.logit_bias = {{static_cast<int32_t>(dice(0, 500)), static_cast<float>(dice(-9, 9))}};
  }
  return sampling;
}

}  // namespace

std::vector<Request> make_probes(const Tokenizer& tokenizer) {
  std::vector<Request> probes;
  for (const std::string& text : kTexts) {
    Request& probe = probes.emplace_back();
    probe.prompt = tokenizer.encode(text);
    probe.sampling.temperature = 0.0f;
    probe.max_new_tokens = 24;
    probe.ignores_eos = true;
  }
  return probes;
}

Request make_random(Dice& dice, const Tokenizer& tokenizer, int64_t max_context) {
  Request request;
  if (dice.one_in(2)) request.prompt = tokenizer.encode(dice.of(kTexts));
  const bool is_long = dice.one_in(6);
  for (int64_t left = is_long ? dice(40, max_context / 2) : dice(1, 24); left > 0; --left) {
    request.prompt.push_back(static_cast<int32_t>(dice(0, tokenizer.num_ids() - 1)));
  }
  request.max_new_tokens = dice.one_in(8) ? max_context : dice(1, 40);
  request.sampling = make_sampling(dice);
  if (dice.one_in(4)) request.num_outputs = static_cast<int32_t>(dice(2, 4));
  if (dice.one_in(8)) {
    request.beam_width = static_cast<int32_t>(dice(1, 4));
    request.num_outputs = static_cast<int32_t>(dice(1, request.beam_width));
    request.sampling = {};
    request.length_penalty = static_cast<float>(dice(0, 20)) / 10.0f;
    // Beams are not cut to what the pool holds, so they stay small.
    request.prompt.resize(std::min<size_t>(request.prompt.size(), 16));
    request.max_new_tokens = std::min<int64_t>(request.max_new_tokens, 16);
  }
  request.priority = static_cast<int32_t>(dice(-2, 2));
  const bool has_beams = request.beam_width > 0;  // which stop strings are not for
  if (!has_beams && dice.one_in(4))
    request.stop = {dice.of<std::string>({" the", "\n", "e", " and", "é"})};
  if (dice.one_in(6)) request.stop_tokens = {static_cast<int32_t>(dice(0, 500))};
  if (dice.one_in(6)) request.min_new_tokens = dice(0, request.max_new_tokens);
  if (dice.one_in(4)) request.ignores_eos = true;
  if (dice.one_in(4)) request.num_logprobs = static_cast<int32_t>(dice(0, 20));
  if (dice.one_in(8)) request.wants_prompt_logprobs = true;
  if (dice.one_in(6)) request.deadline = Clock::now() + std::chrono::milliseconds(dice(0, 300));
  if (dice.one_in(3)) request.cache_salt = dice.of<std::string>({"a", "b"});
  return request;
}

void spoil(Dice& dice, Request& request, int64_t vocab, int64_t max_context) {
  switch (dice(0, 4)) {
    case 0: request.prompt.clear(); break;
    case 1: request.prompt.push_back(static_cast<int32_t>(vocab)); break;
    case 2: request.prompt.assign(static_cast<size_t>(max_context) + 1, 1); break;
    case 3: request.sampling.temperature = std::numeric_limits<float>::quiet_NaN(); break;
    default: request.stop.assign(17, "x"); break;
  }
}

}  // namespace tessera::soak
