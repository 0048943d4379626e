// JSON text as values of a template.
// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

#include "text/chat/render_state.h"

namespace tessera::chat {

// Sets the members of a JSON object in `dict`; strings in it are input. `what` is its name in
// messages. Refuses text that is no object, is nested beyond max_depth or holds integers beyond 64
// bits, and pays for what it reads.
void read_json_object(RenderState& state, std::string_view json, std::string_view what,
                      int64_t max_depth, Dict& dict);

}  // namespace tessera::chat
