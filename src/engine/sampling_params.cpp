// Ranges of the sampling parameters.
// SPDX-License-Identifier: MIT
#include <cmath>
#include <string>
#include <string_view>

#include "core/text.h"
#include "tessera/core/error.h"
#include "tessera/engine/sampling.h"

namespace tessera {
namespace {

constexpr size_t kMostBiases = 1024;

// NaN is outside every range.
bool is_between(double value, double low, double high) { return value >= low && value <= high; }
bool is_share(double value) { return value > 0.0 && value <= 1.0; }

}  // namespace

void check(const SamplingParams& params, int64_t vocab, const FieldNames& names) {
  const SamplingParams& p = params;
  const auto expects_range = [&](bool is_within, std::string_view field, auto value,
                                 std::string_view range) {
    if (!is_within) fail(concat(names(field), " is ", value, "; give ", range));
  };
  expects_range(is_between(p.temperature, 0.0, 10.0), "temperature", p.temperature, "0 to 10");
  expects_range(p.top_k >= 0, "top_k", p.top_k, "a positive number, or 0 for all tokens");
  expects_range(is_share(p.top_p), "top_p", p.top_p, "more than 0, up to 1");
  expects_range(is_between(p.min_p, 0.0, 1.0), "min_p", p.min_p, "0 to 1");
  expects_range(is_share(p.typical_p), "typical_p", p.typical_p, "more than 0, up to 1");
  expects_range(p.repetition_penalty > 0.0f && p.repetition_penalty <= 10.0f, "repetition_penalty",
                p.repetition_penalty, "more than 0, up to 10");
  expects_range(is_between(p.presence_penalty, -2.0, 2.0), "presence_penalty", p.presence_penalty,
                "-2 to 2");
  expects_range(is_between(p.frequency_penalty, -2.0, 2.0), "frequency_penalty",
                p.frequency_penalty, "-2 to 2");
  const std::string bias_name = names("logit_bias");
  if (p.logit_bias.size() > kMostBiases) {
    fail(concat(bias_name, " has ", p.logit_bias.size(), " entries; give at most ", kMostBiases));
  }
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab) {
      fail(concat(bias_name, " names token ", token, "; give 0 to ", vocab - 1));
    }
    if (!std::isfinite(bias)) {
      fail(concat(bias_name, " of token ", token, " is ", bias, "; give -100 to 100"));
    }
  }
}

}  // namespace tessera
