// Positional arguments of `tessera run`, and the length of its answer.
// SPDX-License-Identifier: MIT
#include "apps/prompt.h"

#include <algorithm>
#include <filesystem>

#include "core/text.h"
#include "tessera/core/error.h"

namespace tessera::apps {
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
