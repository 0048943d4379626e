// The table of fields and flags.
// SPDX-License-Identifier: MIT
#include "apps/field_flags.h"

#include <algorithm>
#include <array>
#include <string>

namespace tessera::apps {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::array kRows = {
    Row{"beam_width", "--beam"},
    Row{"dtype", "--dtype"},
    Row{"frequency_penalty", "--frequency-penalty"},
    Row{"kv_bytes", "--kv-bytes"},
    Row{"kv_type", "--kv"},
    Row{"length_penalty", "--length-penalty"},
    Row{"logit_bias", "--logit-bias"},
    Row{"max_batch", "--batch"},
    Row{"max_context", "--context"},
    Row{"max_new_tokens", "--max-tokens"},
    Row{"min_new_tokens", "--min-tokens"},
    Row{"min_p", "--min-p"},
    Row{"num_logprobs", "--logprobs"},
    Row{"num_outputs", "--num-outputs"},
    Row{"presence_penalty", "--presence-penalty"},
    Row{"prompt", "--prompt"},
    Row{"repetition_penalty", "--repetition-penalty"},
    Row{"step_timeout_s", "--step-timeout"},
    Row{"stop", "--stop"},
    Row{"stop_tokens", "--stop-token"},
    Row{"temperature", "--temperature"},
    Row{"top_k", "--top-k"},
    Row{"top_p", "--top-p"},
    Row{"typical_p", "--typical-p"},
    Row{"weights", "--weights"},
};

}  // namespace

std::span<const Row> field_flags() { return kRows; }

FieldNames flag_names() {
  return {[](std::string_view field) {
    const auto found = std::ranges::find(kRows, field, &Row::first);
    return std::string(found == kRows.end() ? field : found->second);
  }};
}

}  // namespace tessera::apps
