// Which flag sets which field of a request or of the engine's options.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "tessera/engine/field_names.h"

namespace tessera::apps {

// {"max_new_tokens", "--max-tokens"}: for every field that a person sets.
std::span<const std::pair<std::string_view, std::string_view>> field_flags();

// Refusals of the engine in the words of the command line.
FieldNames flag_names();

}  // namespace tessera::apps
