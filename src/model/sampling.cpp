// What a step samples, on its way to the device, through two operations, and back.
// SPDX-License-Identifier: MIT
#include "model/sampling.h"

#include <algorithm>

#include "core/text.h"
#include "tessera/core/convert.h"
#include "tessera/core/error.h"
#include "tessera/ops/sample.h"

namespace tessera::model {
namespace {

static_assert(kSeenInPrompt == kSampleInPrompt);

int64_t mask_bytes(const SamplerLimits& limits) {
  return limits.draws * words_of_mask(limits.vocab) * static_cast<int64_t>(sizeof(uint32_t));
}

int64_t list_capacity(const SamplerLimits& limits) {
  return std::min(limits.vocab, limits.context);
}

// Places parts one after the other in memory, each aligned to 256 bytes.
class Layout {
 public:
  explicit Layout(const TensorView& memory) : memory_(memory) {}

  template <class Part>
  void add(Part& part, DType dtype, std::initializer_list<int64_t> shape) {
    constexpr int64_t kAlignment = 256;
    part.offset = size_;
    part.view = TensorView::contiguous(memory_.as<char>() + size_, dtype, shape, memory_.device);
    size_ +=
        (storage_bytes(dtype, part.view.num_elements()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  int64_t size() const { return size_; }

 private:
  TensorView memory_;
  int64_t size_ = 0;
};

template <class Settings>
int64_t lay_out_settings(Settings& s, const SamplerLimits& limits, const TensorView& memory) {
  Layout layout(memory);
  layout.add(s.seeds, DType::i64, {limits.draws});
  for (auto* part : {&s.temperature, &s.typical_p, &s.top_p, &s.min_p, &s.repetition, &s.presence,
                     &s.frequency}) {
    layout.add(*part, DType::f32, {limits.draws});
  }
  for (auto* part : {&s.top_k, &s.sequences, &s.positions, &s.slots, &s.mask_rows}) {
    layout.add(*part, DType::i32, {limits.draws});
  }
  layout.add(s.bias_starts, DType::i32, {limits.draws + 1});
  layout.add(s.scored_tokens, DType::i32, {limits.logits});
  return layout.size();
}

// Tokens come first: most steps need nothing else on the host.
template <class Results>
int64_t lay_out_results(Results& r, const SamplerLimits& limits, const TensorView& memory) {
  Layout layout(memory);
  layout.add(r.tokens, DType::i32, {limits.draws});
  layout.add(r.logprobs, DType::f32, {limits.draws});
  layout.add(r.scores, DType::f32, {limits.logits});
  layout.add(r.top_tokens, DType::i32, {limits.draws, kMaxDrawTop});
  layout.add(r.top_logprobs, DType::f32, {limits.draws, kMaxDrawTop});
  return layout.size();
}

TensorView first(const TensorView& list, int64_t count) { return list.slice(0, 0, count); }

// [rows, cols] at the beginning of a larger list.
TensorView matrix(const TensorView& memory, int64_t rows, int64_t cols) {
  return TensorView::contiguous(memory.data, memory.dtype, {rows, cols}, memory.device);
}

template <class T, class Field>
void stage(const HostSampling& host, int64_t num_draws, T* to, Field field) {
  const DrawSettings rest;
  for (size_t i = 0; i < static_cast<size_t>(num_draws); ++i) {
    to[i] = static_cast<T>((i < host.draws.size() ? host.draws[i] : rest).*field);
  }
}

void check(const HostSampling& host, int64_t num_draws, const SamplerLimits& limits) {
  if (std::ssize(host.draws) > num_draws || num_draws > limits.draws) {
    fail(concat("TokenSampler: ", host.draws.size(), " draws in a step of ", num_draws,
                "; it was made for ", limits.draws));
  }
  if (num_draws + std::ssize(host.scored_tokens) > limits.logits) {
    fail(concat("TokenSampler: ", num_draws, " draws and ", host.scored_tokens.size(),
                " scored tokens; a step has ", limits.logits, " rows of logits"));
  }
  if (std::ssize(host.bias_tokens) > limits.draws * kMaxDrawBiases) {
    fail(concat("TokenSampler: ", host.bias_tokens.size(), " biases; there is room for ",
                limits.draws * kMaxDrawBiases));
  }
  if (std::ssize(host.masks) > limits.draws * words_of_mask(limits.vocab)) {
    fail(concat("TokenSampler: ", host.masks.size(), " words of masks; there is room for ",
                limits.draws * words_of_mask(limits.vocab)));
  }
  if (host.num_top > kMaxDrawTop) {
    fail(concat("TokenSampler: num_top is ", host.num_top, "; at most ", kMaxDrawTop));
  }
}

}  // namespace

void HostSampling::clear() {
  draws.clear();
  bias_starts.clear();
  bias_tokens.clear();
  bias_values.clear();
  masks.clear();
  new_lists.clear();
  scored_tokens.clear();
  state_rows.clear();
  has_lists = wants_logits = false;
  num_top = -1;
}

int64_t TokenSampler::device_bytes(const SamplerLimits& limits) {
  Settings settings;
  Results results;
  const TensorView nowhere{};
  return lay_out_settings(settings, limits, nowhere) + lay_out_results(results, limits, nowhere) +
         8 * limits.draws * (kMaxDrawBiases + list_capacity(limits)) + 4 * limits.draws +
         mask_bytes(limits);
}

TokenSampler::TokenSampler(const SamplerLimits& limits, Device device)
    : limits_(limits),
      device_(device),
      memory_(device),
      biases_(device, static_cast<size_t>(8 * limits.draws * kMaxDrawBiases)),
      lists_(device, static_cast<size_t>(2 * list_capacity(limits) + 1) * sizeof(int32_t)),
      uploaded_(device) {
  const int64_t setting_bytes = lay_out_settings(settings_, limits, TensorView{});
  const int64_t result_bytes = lay_out_results(results_, limits, TensorView{});
  settings_memory_ = memory_.make_zeros(DType::u8, {setting_bytes});
  results_memory_ = memory_.make_zeros(DType::u8, {result_bytes});
  lay_out_settings(settings_, limits, settings_memory_);
  lay_out_results(results_, limits, results_memory_);
  tokens_ = results_.tokens.view;
  bias_tokens_ = memory_.make(DType::i32, {limits.draws * kMaxDrawBiases});
  bias_values_ = memory_.make(DType::f32, {limits.draws * kMaxDrawBiases});
  seen_tokens_ = memory_.make(DType::i32, {limits.draws, list_capacity(limits)});
  seen_counts_ = memory_.make(DType::i32, {limits.draws, list_capacity(limits)});
  num_seen_ = memory_.make_zeros(DType::i32, {limits.draws});
  masks_ = memory_.make(DType::i32, {limits.draws, words_of_mask(limits.vocab)});
  for (int64_t i = 0; i < kDepth; ++i) {
    flights_.push_back({.staging = HostBuffer(device, static_cast<size_t>(setting_bytes)),
                        .masks = HostBuffer(device, static_cast<size_t>(mask_bytes(limits))),
                        .results = HostBuffer(device, static_cast<size_t>(result_bytes)),
                        .done = StreamEvent(device)});
    std::fill_n(flights_.back().staging.as<char>(), setting_bytes, char{0});
  }
}

// Rare, so the host waits for the copy before: one buffer serves all lists.
void TokenSampler::start_lists(const HostSampling& host, const Context& ctx) {
  if (host.new_lists.empty()) return;
  const int64_t capacity = list_capacity(limits_);
  int32_t* const staged = lists_.as<int32_t>();
  const auto copy = [&](const TensorView& to, int64_t row, const int32_t* from, int64_t count) {
    copy_bytes(to.as<int32_t>() + row, device_, from, cpu_device(),
               static_cast<size_t>(count) * sizeof(int32_t), ctx.stream);
  };
  for (const SeenTokens& list : host.new_lists) {
    const auto count = std::ssize(list.tokens);
    if (list.slot < 0 || list.slot >= limits_.draws || count > capacity ||
        count != std::ssize(list.counts)) {
      fail(concat("TokenSampler: a list of ", count, " tokens and ", list.counts.size(),
                  " counts for slot ", list.slot, "; there are ", limits_.draws, " slots of ",
                  capacity));
    }
    uploaded_.wait();
    std::ranges::copy(list.tokens, staged);
    std::ranges::copy(list.counts, staged + capacity);
    staged[2 * capacity] = static_cast<int32_t>(count);
    copy(seen_tokens_, list.slot * capacity, staged, count);
    copy(seen_counts_, list.slot * capacity, staged + capacity, count);
    copy(num_seen_, list.slot, staged + 2 * capacity, 1);
    uploaded_.record(ctx.stream);
  }
}

void TokenSampler::begin(const HostSampling& host, int64_t num_draws, const Context& ctx) {
  check(host, num_draws, limits_);
  num_begun_ = num_finished_;  // a step that failed in between never ends
  expects(num_begun_ - num_read_ < kDepth, "TokenSampler: too many steps are under way");
  Flight& flight = flights_[static_cast<size_t>(num_begun_ % kDepth)];
  const HostBuffer& to = flight.staging;
  stage(host, num_draws, settings_.seeds.in<uint64_t>(to), &DrawSettings::seed);
  stage(host, num_draws, settings_.temperature.in<float>(to), &DrawSettings::temperature);
  stage(host, num_draws, settings_.typical_p.in<float>(to), &DrawSettings::typical_p);
  stage(host, num_draws, settings_.top_p.in<float>(to), &DrawSettings::top_p);
  stage(host, num_draws, settings_.min_p.in<float>(to), &DrawSettings::min_p);
  stage(host, num_draws, settings_.repetition.in<float>(to), &DrawSettings::repetition);
  stage(host, num_draws, settings_.presence.in<float>(to), &DrawSettings::presence);
  stage(host, num_draws, settings_.frequency.in<float>(to), &DrawSettings::frequency);
  stage(host, num_draws, settings_.top_k.in<int32_t>(to), &DrawSettings::top_k);
  stage(host, num_draws, settings_.sequences.in<int32_t>(to), &DrawSettings::sequence);
  stage(host, num_draws, settings_.positions.in<int32_t>(to), &DrawSettings::position);
  stage(host, num_draws, settings_.slots.in<int32_t>(to), &DrawSettings::slot);
  stage(host, num_draws, settings_.mask_rows.in<int32_t>(to), &DrawSettings::mask);
  if (host.has_edits()) {
    int32_t* const starts = settings_.bias_starts.in<int32_t>(to);
    const auto end = static_cast<int32_t>(host.bias_tokens.size());
    std::fill_n(starts, num_draws + 1, end);
    std::ranges::copy(host.bias_starts, starts);
  }
  std::ranges::copy(host.scored_tokens, settings_.scored_tokens.in<int32_t>(to));
  copy_bytes(settings_memory_.data, device_, to.as<char>(), cpu_device(), to.size_bytes(),
             ctx.stream);
  if (!host.bias_tokens.empty()) {
    const int64_t room = limits_.draws * kMaxDrawBiases;
    uploaded_.wait();
    std::ranges::copy(host.bias_tokens, biases_.as<int32_t>());
    std::ranges::copy(host.bias_values, biases_.as<float>() + room);
    const size_t bytes = host.bias_tokens.size() * sizeof(int32_t);
    copy_bytes(bias_tokens_.data, device_, biases_.as<int32_t>(), cpu_device(), bytes, ctx.stream);
    copy_bytes(bias_values_.data, device_, biases_.as<float>() + room, cpu_device(), bytes,
               ctx.stream);
    uploaded_.record(ctx.stream);
  }
  if (host.has_masks()) {
    std::ranges::copy(host.masks, flight.masks.as<uint32_t>());
    copy_bytes(masks_.data, device_, flight.masks.as<uint32_t>(), cpu_device(),
               host.masks.size() * sizeof(uint32_t), ctx.stream);
  }
  start_lists(host, ctx);
  ++num_begun_;
}

void TokenSampler::draw(const TensorView& logits, int64_t num_draws, DrawOptions options,
                        const Context& ctx) const {
  if (num_draws == 0) return;
  const auto rows = [&](const Part& part) { return first(part.view, num_draws); };
  SampleArgs args{.logits = first(logits, num_draws),
                  .tokens = first(tokens_, num_draws),
                  .temperature = rows(settings_.temperature),
                  .top_k = rows(settings_.top_k),
                  .typical_p = rows(settings_.typical_p),
                  .top_p = rows(settings_.top_p),
                  .min_p = rows(settings_.min_p),
                  .seeds = rows(settings_.seeds),
                  .sequences = rows(settings_.sequences),
                  .positions = rows(settings_.positions)};
  if (options.has_masks) {
    args.masks = masks_;
    args.mask_rows = rows(settings_.mask_rows);
  }
  if (options.has_edits) {
    args.bias_starts = first(settings_.bias_starts.view, num_draws + 1);
    args.bias_tokens = bias_tokens_;
    args.bias_values = bias_values_;
    args.slots = rows(settings_.slots);
    args.seen_tokens = seen_tokens_;
    args.seen_counts = seen_counts_;
    args.num_seen = num_seen_;
    args.repetition = rows(settings_.repetition);
    args.presence = rows(settings_.presence);
    args.frequency = rows(settings_.frequency);
  }
  tessera::sample(args, ctx);
}

// One copy for each run of neighbours.
void TokenSampler::fetch_states(const std::vector<int32_t>& rows, const TensorView& states,
                                const Context& ctx) {
  if (rows.empty()) return;
  const auto row_bytes = static_cast<size_t>(storage_bytes(states.dtype, states.size(1)));
  if (state_buffer_.size_bytes() < rows.size() * row_bytes) {
    state_buffer_ = HostBuffer(device_, static_cast<size_t>(states.size(0)) * row_bytes);
  }
  for (size_t i = 0; i < rows.size();) {
    size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    copy_bytes(state_buffer_.as<char>() + i * row_bytes, cpu_device(),
               states.as<char>() + static_cast<size_t>(rows[i]) * row_bytes, device_,
               (end - i) * row_bytes, ctx.stream);
    i = end;
  }
  fetched_states_ = TensorView::contiguous(state_buffer_.as<char>(), states.dtype,
                                           {std::ssize(rows), states.size(1)}, cpu_device());
}

void TokenSampler::finish(const HostSampling& host, const TensorView& logits,
                          const TensorView& states, const Context& ctx) {
  Flight& flight = flights_[static_cast<size_t>((num_begun_ - 1) % kDepth)];
  flight.num_draws = std::ssize(host.draws);
  flight.num_top = flight.num_draws > 0 ? host.num_top : -1;
  flight.num_scored = std::ssize(host.scored_tokens);
  flight.num_logits = host.wants_logits ? logits.size(0) : 0;
  if (flight.num_top >= 0) {
    TokenLogprobsArgs args{.logits = first(logits, flight.num_draws),
                           .tokens = first(tokens_, flight.num_draws),
                           .logprobs = first(results_.logprobs.view, flight.num_draws)};
    if (flight.num_top > 0) {
      args.top_tokens = matrix(results_.top_tokens.view, flight.num_draws, flight.num_top);
      args.top_logprobs = matrix(results_.top_logprobs.view, flight.num_draws, flight.num_top);
    }
    token_logprobs(args, ctx);
  }
  if (flight.num_scored > 0) {
    token_logprobs({.logits = logits.slice(0, logits.size(0) - flight.num_scored, logits.size(0)),
                    .tokens = first(settings_.scored_tokens.view, flight.num_scored),
                    .logprobs = first(results_.scores.view, flight.num_scored)},
                   ctx);
  }
  const bool is_tokens_only = flight.num_top < 0 && flight.num_scored == 0;
  const size_t bytes = is_tokens_only ? static_cast<size_t>(flight.num_draws) * sizeof(int32_t)
                                      : flight.results.size_bytes();
  copy_bytes(flight.results.as<char>(), cpu_device(), results_memory_.data, device_, bytes,
             ctx.stream);
  host_logits_ = device_.is_cpu() ? logits.as<float>() : nullptr;
  if (flight.num_logits > 0 && host_logits_ == nullptr) {
    const auto row_bytes = static_cast<size_t>(limits_.vocab) * sizeof(float);
    if (logits_.size_bytes() == 0) {
      logits_ = HostBuffer(device_, static_cast<size_t>(limits_.logits) * row_bytes);
    }
    copy_bytes(logits_.as<float>(), cpu_device(), logits.data, device_,
               static_cast<size_t>(flight.num_logits) * row_bytes, ctx.stream);
    host_logits_ = logits_.as<float>();
  }
  flight.num_states = std::ssize(host.state_rows);
  fetch_states(host.state_rows, states, ctx);
  flight.done.record(ctx.stream);
  num_finished_ = num_begun_;
}

SampledStep TokenSampler::wait() {
  expects(num_read_ < num_finished_, "TokenSampler: no step is under way");
  const Flight& flight = flights_[static_cast<size_t>(num_read_ % kDepth)];
  flight.done.wait();
  const auto draws = static_cast<size_t>(flight.num_draws);
  const HostBuffer& from = flight.results;
  SampledStep step;
  step.tokens = {results_.tokens.in<int32_t>(from), draws};
  if (flight.num_top >= 0) step.logprobs = {results_.logprobs.in<float>(from), draws};
  if (flight.num_top > 0) {
    const size_t count = draws * static_cast<size_t>(flight.num_top);
    step.top_tokens = {results_.top_tokens.in<int32_t>(from), count};
    step.top_logprobs = {results_.top_logprobs.in<float>(from), count};
  }
  step.scores = {results_.scores.in<float>(from), static_cast<size_t>(flight.num_scored)};
  step.logits = {host_logits_,
                 static_cast<size_t>(flight.num_logits) * static_cast<size_t>(limits_.vocab)};
  if (flight.num_states > 0) {
    states_.resize(static_cast<size_t>(fetched_states_.num_elements()));
    convert(fetched_states_,
            TensorView::contiguous(states_.data(), DType::f32,
                                   {flight.num_states, fetched_states_.size(1)}, cpu_device()));
    step.states = states_;
  }
  return step;
}

}  // namespace tessera::model
