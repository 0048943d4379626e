// sample and token_logprobs: what they take, and where they run.
// SPDX-License-Identifier: MIT
#include "tessera/ops/sample.h"

#include <algorithm>
#include <initializer_list>

#include "core/sampling_math.h"
#include "core/text.h"
#include "cpu/sample.h"
#include "kernels/sampling/rows.h"
#include "ops/check.h"
#include "ops/dispatch.h"
#include "tessera/core/error.h"

namespace tessera {
namespace {

using namespace ops;

constexpr int64_t kMaxTop = 256;
static_assert(kSampleInPrompt == sampling::kInPrompt);

void check_logits(const Named& logits) {
  expect_tensor(logits, {DType::f32});
  expect_rank(logits, 2);
  expect_rows(logits);
  const int64_t vocab = logits.view.size(1);
  if (vocab < 1 || vocab > sampling::kMaxVocab) {
    fail(concat(logits.what, " is ", to_string(logits.view), "; a row has 1 to ",
                sampling::kMaxVocab, " logits"));
  }
}

// One element of `type` for each row, where given.
void check_setting(std::string_view what, const std::optional<TensorView>& setting, DType type,
                   const Named& logits, int64_t count) {
  if (!setting) return;
  const Named named{what, *setting};
  expect_tensor(named, {type}, logits);
  expect_one_each(named, count, "row of logits");
}

// Tensors that are given all or not at all, and whether they are.
bool are_given(std::initializer_list<const std::optional<TensorView>*> views,
               std::string_view message) {
  const auto is_given = [](const std::optional<TensorView>* view) { return view->has_value(); };
  const bool any = std::ranges::any_of(views, is_given);
  expects(any == std::ranges::all_of(views, is_given), message);
  return any;
}

void check_biases(const SampleArgs& args, const Named& logits) {
  if (!are_given({&args.bias_starts, &args.bias_tokens, &args.bias_values},
                 "sample: give bias_starts, bias_tokens and bias_values, or none of them")) {
    return;
  }
  const Named starts{"sample: bias_starts", *args.bias_starts};
  const Named tokens{"sample: bias_tokens", *args.bias_tokens};
  const Named values{"sample: bias_values", *args.bias_values};
  expect_tensor(starts, {DType::i32}, logits);
  expect_one_each(starts, logits.view.size(0) + 1, "row of logits, and one more");
  expect_tensor(tokens, {DType::i32}, logits);
  expect_contiguous(tokens);
  expect_tensor(values, {DType::f32}, logits);
  expect_one_each(values, args.bias_tokens->num_elements(), "entry of bias_tokens");
  expect_writable(logits);
}

// A tensor of the lists, which the call writes.
void check_list(const Named& list, int rank, const Named& logits, const Named& tokens) {
  expect_tensor(list, {DType::i32}, logits);
  expect_rank(list, rank);
  expect_rows(list);
  expect_writable(list);
  expect_apart(list, logits);
  expect_apart(list, tokens);
}

void check_lists(const SampleArgs& args, const Named& logits, const Named& tokens) {
  if (!are_given({&args.slots, &args.seen_tokens, &args.seen_counts, &args.num_seen},
                 "sample: give slots, seen_tokens, seen_counts and num_seen, or none of them")) {
    return;
  }
  check_setting("sample: slots", args.slots, DType::i32, logits, logits.view.size(0));
  const Named seen_tokens{"sample: seen_tokens", *args.seen_tokens};
  const Named seen_counts{"sample: seen_counts", *args.seen_counts};
  const Named num_seen{"sample: num_seen", *args.num_seen};
  check_list(seen_tokens, 2, logits, tokens);
  check_list(seen_counts, 2, logits, tokens);
  check_list(num_seen, 1, logits, tokens);
  expect_shape_of(seen_counts, seen_tokens);
  expect_one_each(num_seen, args.seen_tokens->size(0), "row of seen_tokens");
  expect_apart(seen_counts, seen_tokens);
  expect_apart(num_seen, seen_tokens);
  expect_apart(num_seen, seen_counts);
  expect_writable(logits);
}

void check_masks(const SampleArgs& args, const Named& logits) {
  if (!are_given({&args.masks, &args.mask_rows}, "sample: give masks and mask_rows, or neither")) {
    return;
  }
  const Named masks{"sample: masks", *args.masks};
  expect_tensor(masks, {DType::i32}, logits);
  expect_rank(masks, 2);
  expect_rows(masks);
  const int64_t num_words = (logits.view.size(1) + 31) / 32;
  expects_equal(masks.view.size(1), num_words, "sample: words of a mask, 32 tokens each");
  check_setting("sample: mask_rows", args.mask_rows, DType::i32, logits, logits.view.size(0));
}

void check_sample(const SampleArgs& args) {
  const Named logits{"sample: logits", args.logits};
  const Named tokens{"sample: tokens", args.tokens};
  check_logits(logits);
  const int64_t rows = args.logits.size(0);
  expect_tensor(tokens, {DType::i32}, logits);
  expect_one_each(tokens, rows, "row of logits");
  expect_apart(tokens, logits);
  const auto check = [&](std::string_view what, const std::optional<TensorView>& view, DType type) {
    check_setting(what, view, type, logits, rows);
  };
  check("sample: temperature", args.temperature, DType::f32);
  check("sample: top_k", args.top_k, DType::i32);
  check("sample: typical_p", args.typical_p, DType::f32);
  check("sample: top_p", args.top_p, DType::f32);
  check("sample: min_p", args.min_p, DType::f32);
  check("sample: seeds", args.seeds, DType::i64);
  check("sample: sequences", args.sequences, DType::i32);
  check("sample: positions", args.positions, DType::i32);
  check("sample: repetition", args.repetition, DType::f32);
  check("sample: presence", args.presence, DType::f32);
  check("sample: frequency", args.frequency, DType::f32);
  check_biases(args, logits);
  check_lists(args, logits, tokens);
  check_masks(args, logits);
}

void check_token_logprobs(const TokenLogprobsArgs& args) {
  const Named logits{"token_logprobs: logits", args.logits};
  const Named tokens{"token_logprobs: tokens", args.tokens};
  const Named logprobs{"token_logprobs: logprobs", args.logprobs};
  check_logits(logits);
  const int64_t rows = args.logits.size(0);
  expect_tensor(tokens, {DType::i32}, logits);
  expect_one_each(tokens, rows, "row of logits");
  expect_tensor(logprobs, {DType::f32}, logits);
  expect_one_each(logprobs, rows, "row of logits");
  expect_apart(logprobs, logits);
  if (!are_given({&args.top_tokens, &args.top_logprobs},
                 "token_logprobs: give top_tokens and top_logprobs, or neither")) {
    return;
  }
  const Named top_tokens{"token_logprobs: top_tokens", *args.top_tokens};
  const Named top_logprobs{"token_logprobs: top_logprobs", *args.top_logprobs};
  expect_tensor(top_tokens, {DType::i32}, logits);
  expect_tensor(top_logprobs, {DType::f32}, logits);
  expect_rank(top_tokens, 2);
  expect_contiguous(top_tokens);
  expect_contiguous(top_logprobs);
  expect_shape_of(top_logprobs, top_tokens);
  expects_equal(args.top_tokens->size(0), rows, "token_logprobs: rows of top_tokens");
  if (args.top_tokens->size(1) > kMaxTop) {
    fail(concat("token_logprobs: top_tokens is ", to_string(*args.top_tokens), "; give at most ",
                kMaxTop, " a row"));
  }
  expect_apart(top_logprobs, logits);
  expect_apart(top_tokens, logits);
}

const Op<SampleArgs>& sample_op() {
  static const Op<SampleArgs> op{"sample", &check_sample, &cpu::sample,
                                 kernels::sampling_rows_sm90().sample,
                                 kernels::sampling_rows().sample};
  return op;
}

const Op<TokenLogprobsArgs>& token_logprobs_op() {
  static const Op<TokenLogprobsArgs> op{
      "token_logprobs", &check_token_logprobs, &cpu::token_logprobs,
      kernels::sampling_rows_sm90().token_logprobs, kernels::sampling_rows().token_logprobs};
  return op;
}

}  // namespace

void sample(const SampleArgs& args, const Context& ctx) {
  run(sample_op(), args, args.logits.device, ctx);
}

void token_logprobs(const TokenLogprobsArgs& args, const Context& ctx) {
  run(token_logprobs_op(), args, args.logits.device, ctx);
}

bool supports(const SampleArgs& args, const Context& ctx) {
  return is_supported(sample_op(), args, args.logits.device, ctx);
}

bool supports(const TokenLogprobsArgs& args, const Context& ctx) {
  return is_supported(token_logprobs_op(), args, args.logits.device, ctx);
}

}  // namespace tessera
