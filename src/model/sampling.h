// The end of a step on the model's device: rows of logits to tokens and log-probabilities.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/graph.h"
#include "model/memory.h"
#include "tessera/core/context.h"
#include "tessera/core/host_buffer.h"
#include "tessera/core/tensor.h"

namespace tessera::model {

// How one token is drawn. SampleArgs says what the fields mean.
struct DrawSettings {
  uint64_t seed = 0;
  float temperature = 0.0f;
  int32_t top_k = 0;
  float typical_p = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t sequence = 0;
  int32_t position = 0;
  int32_t slot = -1;  // of the list of tokens seen; -1: no penalties
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
  int32_t mask = -1;  // index of its mask; -1: any token may be drawn
};

// Tokens seen before, for penalties: the list a slot begins with.
struct SeenTokens {
  int32_t slot = 0;
  std::vector<int32_t> tokens = {};  // each once
  std::vector<int32_t> counts = {};  // how often it was generated, plus kSeenInPrompt if the prompt
                                     // has it
};
inline constexpr int32_t kSeenInPrompt = int32_t{1} << 30;

// What a step samples, as plain numbers. The first rows of the step's logits are drawn from, one
// for each draw; the rows behind them score tokens that are known.
struct HostSampling {
  std::vector<DrawSettings> draws;
  std::vector<int32_t> bias_starts;  // [draws + 1], or empty if no draw has biases
  std::vector<int32_t> bias_tokens;  // at most kMaxDrawBiases for a draw, each token once
  std::vector<float> bias_values;    // -infinity bans
  std::vector<uint32_t> masks;       // [masks, words_of_mask(vocab)]: bit t says that token t may
                                     // be drawn
  std::vector<SeenTokens> new_lists;
  bool has_lists = false;              // some draw has a slot
  int32_t num_top = -1;                // log-probabilities of drawn tokens and of so many others;
                                       // -1: none
  std::vector<int32_t> scored_tokens;  // whose log-probabilities are wanted
  bool wants_logits = false;           // on the host
  std::vector<int32_t> state_rows;     // tokens whose hidden states are wanted, ascending

  bool has_edits() const { return !bias_starts.empty() || has_lists; }
  bool has_masks() const { return !masks.empty(); }
  void clear();
};

// The results of a step, on the host.
struct SampledStep {
  std::span<const int32_t> tokens;      // [draws]; below 0: none, as SampleArgs says
  std::span<const float> logprobs;      // [draws], if asked for
  std::span<const int32_t> top_tokens;  // [draws, num_top]; -1 where there are fewer
  std::span<const float> top_logprobs;  // likewise
  std::span<const float> scores;        // [scored]; NaN where logits are not finite
  std::span<const float> logits;        // [num_logits, vocab], if asked for
  std::span<const float> states;        // [state rows, hidden], if asked for
};

struct SamplerLimits {
  int64_t draws = 0;
  int64_t logits = 0;  // rows of a step
  int64_t vocab = 0;
  int64_t context = 0;  // tokens of a sequence
};
inline constexpr int64_t words_of_mask(int64_t vocab) { return (vocab + 31) / 32; }
// What a step queues besides the plain draw: a captured step serves steps that agree in it.
struct DrawOptions {
  bool has_edits = false;  // biases or penalties
  bool has_masks = false;
  auto operator<=>(const DrawOptions&) const = default;
};
inline constexpr int64_t kMaxDrawTop = 20;
inline constexpr int64_t kMaxDrawBiases = 1024 + 256;  // biases and banned tokens

// Device memory for what a step samples, at addresses that never change, and for its results. The
// drawn tokens stay on the device as well, so that the next step can begin with them before the
// host has seen them. Steps begin and are waited for in the same order, and kDepth of them can be
// under way.
class TokenSampler {
 public:
  static constexpr int64_t kDepth = 2;

  TokenSampler(const SamplerLimits& limits, Device device);
  static int64_t device_bytes(const SamplerLimits& limits);

  // Begins a step: queues the copy of what it samples. `num_draws` may be larger than the number of
  // draws, for a graph of fixed size; the rest take the largest logit.
  void begin(const HostSampling& host, int64_t num_draws, const Context& ctx);
  // Draws tokens from the first num_draws rows. What it queues depends on num_draws and `options`
  // alone, so that it can be captured.
  void draw(const TensorView& logits, int64_t num_draws, DrawOptions options,
            const Context& ctx) const;
  // Ends the step: log-probabilities, if asked for, and the results' way back to the host.
  // `states` [tokens, hidden] is read if host.state_rows has some; only one step under way may.
  void finish(const HostSampling& host, const TensorView& logits, const TensorView& states,
              const Context& ctx);
  // Waits for the oldest step under way; its results stay valid until release and the next begin.
  SampledStep wait();
  // The results of the oldest step have been read.
  void release() { ++num_read_; }

  TensorView tokens() const { return tokens_; }  // i32 [limits.draws]: drawn by the last step

 private:
  struct Flight {
    HostBuffer staging;
    HostBuffer masks;
    HostBuffer results;
    StreamEvent done;
    int64_t num_draws = 0;
    int64_t num_top = -1;
    int64_t num_scored = 0;
    int64_t num_logits = 0;  // on the host
    int64_t num_states = 0;
  };
  // A part of the settings or the results, as tensor and in a host buffer.
  struct Part {
    TensorView view;
    int64_t offset = 0;  // bytes
    template <class T>
    T* in(const HostBuffer& buffer) const {
      return reinterpret_cast<T*>(buffer.as<char>() + offset);
    }
  };
  struct Settings {
    Part seeds, temperature, top_k, typical_p, top_p, min_p, sequences, positions, slots, mask_rows;
    Part repetition, presence, frequency, bias_starts, scored_tokens;
  };
  struct Results {
    Part tokens, logprobs, scores, top_tokens, top_logprobs;
  };
  void fetch_states(const std::vector<int32_t>& rows, const TensorView& states, const Context& ctx);
  void start_lists(const HostSampling& host, const Context& ctx);

  SamplerLimits limits_;
  Device device_;
  TensorPool memory_;
  TensorView settings_memory_, results_memory_;  // u8
  Settings settings_;
  Results results_;
  TensorView bias_tokens_, bias_values_;  // [draws * kMaxDrawBiases]
  TensorView seen_tokens_, seen_counts_;  // i32 [draws, the most that can be seen]
  TensorView num_seen_;                   // i32 [draws]
  TensorView masks_;                      // i32 [draws, words of a mask]
  TensorView tokens_;                     // [draws]
  std::vector<Flight> flights_;           // [kDepth]
  int64_t num_begun_ = 0, num_finished_ = 0, num_read_ = 0;
  HostBuffer biases_;                   // tokens, then values
  HostBuffer lists_;                    // one list: tokens, counts, and how many
  StreamEvent uploaded_;                // biases_ or lists_ have been read
  HostBuffer logits_;                   // of a GPU; allocated when first asked for
  const float* host_logits_ = nullptr;  // of the step that ended last
  HostBuffer state_buffer_;             // as the device has them; allocated when first asked for
  TensorView fetched_states_;           // [states, hidden] in it
  std::vector<float> states_;           // the same as floats
};

}  // namespace tessera::model
