// From logits to tokens: biases, penalties, truncation and one draw per row; and log-probabilities.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/core/context.h"
#include "tessera/core/tensor.h"

namespace tessera {

// What `tokens` holds for a row without an answer.
inline constexpr int32_t kSampleBroken = -1;   // a logit is NaN or +infinity
inline constexpr int32_t kSampleNothing = -2;  // every logit is -infinity, or outside the mask

// Added to a token's count in seen_counts if the prompt contains the token.
inline constexpr int32_t kSampleInPrompt = int32_t{1} << 30;

// tokens[row] = one token of logits[row]. The steps, in this order: biases are added, tokens seen
// before are penalised, tokens outside the mask are dropped, logits are divided by the temperature;
// top_k, typical_p, top_p and min_p each keep some of the tokens that the step before has left; one
// of the rest is drawn with its probability. Of equal logits the smaller token is kept. Temperature
// 0 takes the largest logit.
//
// Settings are tensors with one element per row; an absent one has the value in parentheses. They
// are read on the device, so a captured call serves any settings. No value in them is refused:
// temperatures that are not above 0 (NaN included) count as 0, a top_k that is not as all tokens, a
// share that is not above 0 keeps one token, and lists, slots and tokens out of range are ignored.
//
// Probabilities are integers, multiples of 2^-40 of the largest, and their sums are exact. A token
// therefore depends on its row's logits and settings alone: a CPU, a GPU and any split of a row
// give the same one. A token whose probability is below 2^-40 of the largest is never drawn. The
// relative error of a probability is at most 2^-22 + 2^-23 |ln p / p_largest|.
struct SampleArgs {
  TensorView logits;                           // f32 [rows, vocab]; vocab 1 to 2^20
  TensorView tokens;                           // out: i32 [rows]
  std::optional<TensorView> temperature = {};  // f32 (1)
  std::optional<TensorView> top_k = {};        // i32 (0: all)
  std::optional<TensorView> typical_p = {};    // f32 (1)
  std::optional<TensorView> top_p = {};        // f32 (1)
  std::optional<TensorView> min_p = {};        // f32 (0)
  // The draw is a function of these three: a counter-based generator, without state.
  std::optional<TensorView> seeds = {};      // i64 (0)
  std::optional<TensorView> sequences = {};  // i32 (0)
  std::optional<TensorView> positions = {};  // i32 (0)
  // Biases of row r: entries bias_starts[r] to bias_starts[r + 1], each token at most once. Values
  // are clamped to -100 and 100; -infinity bans the token.
  std::optional<TensorView> bias_starts = {};  // i32 [rows + 1]
  std::optional<TensorView> bias_tokens = {};  // i32 [entries]
  std::optional<TensorView> bias_values = {};  // f32 [entries]
  // Tokens seen before, for the penalties: a list per slot. Each of its num_seen entries is a
  // different token and how often it was generated, plus kSampleInPrompt if the prompt has it. The
  // call counts the token it draws, appending it if it is new and there is room. Rows of one call
  // have different slots; a row whose slot is -1 has no list.
  std::optional<TensorView> slots = {};        // i32 [rows]
  std::optional<TensorView> seen_tokens = {};  // i32 [slots, capacity], in and out
  std::optional<TensorView> seen_counts = {};  // i32 [slots, capacity], in and out
  std::optional<TensorView> num_seen = {};     // i32 [slots], in and out
  // The repetition penalty divides positive logits and multiplies the others, once per token seen.
  // Then `presence` and `frequency` times the count are subtracted from tokens generated.
  std::optional<TensorView> repetition = {};  // f32 (1)
  std::optional<TensorView> presence = {};    // f32 (0)
  std::optional<TensorView> frequency = {};   // f32 (0)
  // Row r draws only tokens whose bit in masks[mask_rows[r]] is set: bit t % 32 of word t / 32. A
  // row whose mask_rows is -1 draws any. Rows may share a mask.
  std::optional<TensorView> masks = {};      // i32 [masks, ceil(vocab / 32)]
  std::optional<TensorView> mask_rows = {};  // i32 [rows]
};
// With biases or lists, rows of logits may share no memory: a GPU edits the tokens concerned in
// place and restores them before the call ends.

// The log-probability of each row's token under softmax(logits[row]), and of the most probable
// tokens, best first, of equals the smaller token first. A token outside the row and a row that is
// broken or empty (see kSampleBroken) get NaN. Beyond the tokens with a logit above -infinity,
// top_tokens is -1 and top_logprobs NaN. Error: at most 2^-22 (16 + |logprob|).
struct TokenLogprobsArgs {
  TensorView logits;                            // f32 [rows, vocab]; vocab 1 to 2^20
  TensorView tokens;                            // i32 [rows]
  TensorView logprobs;                          // out: f32 [rows]
  std::optional<TensorView> top_tokens = {};    // out: i32 [rows, count]; count at most 256
  std::optional<TensorView> top_logprobs = {};  // out: f32 [rows, count]
};

void sample(const SampleArgs& args, const Context& ctx = {});
void token_logprobs(const TokenLogprobsArgs& args, const Context& ctx = {});
bool supports(const SampleArgs& args, const Context& ctx = {});
bool supports(const TokenLogprobsArgs& args, const Context& ctx = {});

}  // namespace tessera
