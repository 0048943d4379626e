// What `tessera run` was given: a model, a prompt and room for the answer.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine/request.h"

namespace tessera::apps {

// Bounds max_new_tokens by what is left of the context. Refuses a prompt that fills it.
void fit_to_context(Request& request, int64_t max_context);

// MODEL and PROMPT of `tessera run`. One argument alone that has spaces in it and is no folder is
// the prompt for the default model; any other is a model.
struct RunArguments {
  std::string model;
  std::optional<std::string> prompt;
};
RunArguments read_run_arguments(const std::vector<std::string>& positionals);

}  // namespace tessera::apps
